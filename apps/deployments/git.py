"""Validation of Git addresses and refs, and detection of the git program."""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from django.conf import settings

from apps.core import ssrf
from apps.deployments import errors

REMOTE_SCHEMES = ("https", "http", "ssh", "git")
# The sample agent's repository: the only one allowed inside DATA_DIR.
SAMPLE_REPOSITORY = "sample-agent"

# Program folders that exist in every sandbox; a git elsewhere cannot run there.
_SANDBOX_PATH = ("/usr/local/bin", "/usr/bin", "/bin")
_SCP_LIKE = re.compile(r"(?:[\w.-]+@)?(?P<host>[\w.-]+):(?!//)(?P<path>[^\s:].*)")
_CONTROL = re.compile(r"[\x00-\x20\x7f]")
_REF = re.compile(r"(?!-)[^\x00-\x20\x7f~^:?*\[\\]{1,255}")


@dataclass(frozen=True, slots=True)
class GitAddress:
    """A parsed Git address; `host` is set for a remote one, `folder` for a local one."""

    text: str
    scheme: str
    host: str = ""
    folder: Path | None = None


def normalize_address(text: str) -> str:
    """Return the address to store, or raise `InvalidGitAddress`."""
    return parse_address(text).text


def parse_address(text: str) -> GitAddress:
    """Parse and validate an address against the settings, without network access."""
    text = text.strip()
    if not text:
        raise errors.InvalidGitAddress("The Git address is required.")
    if text.startswith("-") or _CONTROL.search(text) or len(text) > 2000:
        raise errors.InvalidGitAddress(
            "The Git address has a space, a control character or a leading dash, or is too long."
        )
    if text.startswith("/"):
        return _parse_local(text, Path(text))
    scheme, separator, _ = text.partition("://")
    if not separator:
        match = _SCP_LIKE.fullmatch(text)
        if match is None or "::" in text:
            raise errors.InvalidGitAddress(
                f"{text!r} is not a Git address: it must start with https://, http://, ssh:// or"
                " git://, or have the form git@host:owner/repository."
            )
        return GitAddress(text, "ssh", host=match["host"])
    scheme = scheme.lower()
    if scheme == "file":
        parts = urlsplit(text)
        if parts.hostname not in (None, "localhost"):
            raise errors.InvalidGitAddress("A file:// address must not have a host.")
        return _parse_local(text, Path(unquote(parts.path)))
    if scheme not in REMOTE_SCHEMES:
        raise errors.InvalidGitAddress(
            f"Git addresses with the scheme {scheme}:// are not supported."
        )
    return _parse_remote(text, scheme)


def _parse_remote(text: str, scheme: str) -> GitAddress:
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise errors.InvalidGitAddress(f"{text!r} is not a Git address.") from None
    if not host or not parts.path.strip("/") or host.startswith("-"):
        raise errors.InvalidGitAddress(f"{text!r} must have a host and a repository path.")
    if parts.password is not None or (parts.username and scheme in ("http", "https")):
        raise errors.InvalidGitAddress(
            "Remove the user name, password or token from the address: all users who can read the"
            " deployment would see it."
        )
    return GitAddress(text, scheme, host=host)


def _parse_local(text: str, folder: Path) -> GitAddress:
    if not folder.is_absolute():
        raise errors.InvalidGitAddress("The path of a local repository must be absolute.")
    real = folder.resolve()
    if is_sample(real):
        return GitAddress(text, "file", folder=real)
    if not settings.ALLOW_FILE_GIT:
        raise errors.InvalidGitAddress(
            "Local repositories are not allowed on this installation (ALLOW_FILE_GIT)."
        )
    # DATA_DIR has the sources of other tenants.
    if real.is_relative_to(settings.DATA_DIR):
        raise errors.InvalidGitAddress(
            "Repositories inside the platform's data folder are not allowed."
        )
    return GitAddress(text, "file", folder=real)


def is_sample(folder: Path) -> bool:
    """Return whether the folder is the repository of the platform's own sample agent."""
    return folder.is_relative_to(settings.DATA_DIR / SAMPLE_REPOSITORY)


def normalize_ref(ref: str) -> str:
    """Return the branch, tag or commit to store; empty for the default branch."""
    ref = ref.strip()
    if ref and (not _REF.fullmatch(ref) or ".." in ref or ref.endswith((".lock", "/"))):
        raise errors.InvalidGitAddress(f"{ref!r} is not a valid branch, tag or commit.")
    return ref


class HostNotReachable(Exception):
    """The host cannot be resolved, or resolves to an address that builds may not reach."""


def check_reachable(host: str) -> None:
    """Reject a host that resolves to this machine or a private network, unless that is allowed.

    Called immediately before each fetch. It catches mistakes and simple probes; the network policy
    of the sandbox limits a build.
    """
    if settings.ALLOW_PRIVATE_ADDRESSES:
        return
    try:
        ssrf.require_public(host, ssrf.resolve(host))
    except ssrf.ResolutionFailed:
        raise HostNotReachable(f"The host {host} cannot be resolved.") from None
    except ssrf.PrivateAddress:
        raise HostNotReachable(
            f"The host {host} is on a private network, which builds may not reach"
            " (ALLOW_PRIVATE_ADDRESSES)."
        ) from None


def is_installed() -> bool:
    """Return whether git is on this process's PATH and available inside sandboxes."""
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    path = os.pathsep.join(folder for folder in folders if folder in _SANDBOX_PATH)
    return bool(path) and shutil.which("git", path=path) is not None
