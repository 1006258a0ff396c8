"""Which Git addresses and refs are taken, what they may reach, and whether there is a git."""

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
# What an instance made for its own sample agent is the one local repository inside its data.
OWN_REPOSITORIES = "sample-agent"

# The folders of programs that every sandbox shows; a git elsewhere could not be run there.
_SHOWN = ("/usr/local/bin", "/usr/bin", "/bin")
_SCP_LIKE = re.compile(r"(?:[\w.-]+@)?(?P<host>[\w.-]+):(?!//)(?P<path>[^\s:].*)")
_CONTROL = re.compile(r"[\x00-\x20\x7f]")
_REF = re.compile(r"(?!-)[^\x00-\x20\x7f~^:?*\[\\]{1,255}")


@dataclass(frozen=True, slots=True)
class Address:
    """A Git address taken apart: `host` of a remote one, `folder` of a local one."""

    text: str
    scheme: str
    host: str = ""
    folder: Path | None = None


def checked_address(text: str) -> str:
    """The address as it is kept; `UnusableAddress` says what is wrong with it."""
    return parse(text).text


def parse(text: str) -> Address:
    """Take an address apart. Looks at nothing but the text and the operator's settings."""
    text = text.strip()
    if not text:
        raise errors.UnusableAddress("A Git address is needed.")
    if text.startswith("-") or _CONTROL.search(text) or len(text) > 2000:
        raise errors.UnusableAddress("That is not a Git address.")
    if text.startswith("/"):
        return _local(text, Path(text))
    scheme, separator, _ = text.partition("://")
    if not separator:
        found = _SCP_LIKE.fullmatch(text)
        if found is None or "::" in text:
            raise errors.UnusableAddress(
                f"{text!r} is not a Git address: it begins with https://, http://, ssh://, git://"
                " or looks like git@host:owner/repository."
            )
        return Address(text, "ssh", host=found["host"])
    scheme = scheme.lower()
    if scheme == "file":
        parts = urlsplit(text)
        if parts.hostname not in (None, "localhost"):
            raise errors.UnusableAddress("A file:// address names no other machine.")
        return _local(text, Path(unquote(parts.path)))
    if scheme not in REMOTE_SCHEMES:
        raise errors.UnusableAddress(f"Git addresses that begin with {scheme}:// are not taken.")
    return _remote(text, scheme)


def _remote(text: str, scheme: str) -> Address:
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise errors.UnusableAddress(f"{text!r} is not a Git address.") from None
    if not host or not parts.path.strip("/") or host.startswith("-"):
        raise errors.UnusableAddress(f"{text!r} names no host and repository.")
    if parts.password is not None or (parts.username and scheme in ("http", "https")):
        raise errors.UnusableAddress(
            "An address with a password or token in it would be shown to everybody who may see the"
            " deployment. Leave it out."
        )
    return Address(text, scheme, host=host)


def _local(text: str, folder: Path) -> Address:
    if not settings.ALLOW_FILE_GIT:
        raise errors.UnusableAddress(
            "Repositories on the platform's own disk are not allowed here (ALLOW_FILE_GIT)."
        )
    if not folder.is_absolute():
        raise errors.UnusableAddress("The path of a local repository is absolute.")
    real, data = folder.resolve(), settings.DATA_DIR
    # Other tenants' sources lie in the data folder.
    if real.is_relative_to(data) and not real.is_relative_to(data / OWN_REPOSITORIES):
        raise errors.UnusableAddress("A repository inside the platform's data is not taken.")
    return Address(text, "file", folder=real)


def checked_ref(ref: str) -> str:
    """A branch, tag or commit; empty for the default branch."""
    ref = ref.strip()
    if ref and (not _REF.fullmatch(ref) or ".." in ref or ref.endswith((".lock", "/"))):
        raise errors.UnusableAddress(f"{ref!r} is not the name of a branch, tag or commit.")
    return ref


class NotReachable(Exception):
    """The host has no address, or one that tenants may not reach."""


def check_reachable(host: str) -> None:
    """Refuse a host whose name leads to this machine or a private network, unless that is allowed.

    Asked just before each use. The sandbox's network policy is what finally decides what a build
    reaches; this keeps an honest mistake and a plain probe from leaving at all.
    """
    if settings.ALLOW_PRIVATE_ADDRESSES:
        return
    try:
        ssrf.require_public(host, ssrf.resolve(host))
    except ssrf.ResolutionFailed:
        raise NotReachable(f"The host {host} is not known.") from None
    except ssrf.PrivateAddress:
        raise NotReachable(
            f"The host {host} is on a private network, which builds may not reach here"
            " (ALLOW_PRIVATE_ADDRESSES)."
        ) from None


def is_installed() -> bool:
    """Whether this process would find a program git that its sandboxes show as well."""
    asked = os.environ.get("PATH", os.defpath).split(os.pathsep)
    path = os.pathsep.join(folder for folder in asked if folder in _SHOWN)
    return bool(path) and shutil.which("git", path=path) is not None
