"""Checks, sandbox policy and failure messages shared by git and Dulwich fetches."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from apps.deployments import errors, git, sandbox
from apps.deployments.builds import sandbox_run
from apps.deployments.builds.build_context import BuildContext, BuildFailed

_SOURCE_MB = 2048
# Proxies and certificates for Git; no package index, whose address may have a password.
_NETWORK_VARIABLES = re.compile(
    r"(?:https?|all|no)_proxy|SSL_CERT_(?:FILE|DIR)|GIT_SSL_CAINFO", re.IGNORECASE
)

FAILURE_MESSAGES = {
    "empty": "The repository {url} is empty: it has no commit.",
    "no_ref": "The repository {url} has no branch, tag or commit {ref}.",
    "private": (
        "There is no public repository at {url}: it does not exist, or it requires a sign-in."
    ),
    "nowhere": "There is no repository at {url}.",
    "ssh_key": (
        "The repository {url} requires an SSH key, which builds do not have; use its https://"
        " address."
    ),
    "unreadable": (
        "The repository {url} cannot be read by the unprivileged user that builds run as."
    ),
    "unreachable": "The server of {url} cannot be reached.",
}


@dataclass(frozen=True, slots=True)
class Commit:
    sha: str
    subject: str


def check_address(url: str) -> git.GitAddress:
    """Return the parsed address, or raise `BuildFailed` if builds may not fetch from it."""
    try:
        address = git.parse_address(url)
        if address.host:
            git.check_reachable(address.host)
    except (errors.InvalidGitAddress, git.HostNotReachable) as error:
        raise BuildFailed(f"{url} cannot be cloned. {error}") from None
    try:
        exists = address.folder is None or address.folder.exists()
    except PermissionError:
        raise BuildFailed(FAILURE_MESSAGES["unreadable"].format(url=url)) from None
    if not exists:
        raise BuildFailed(FAILURE_MESSAGES["nowhere"].format(url=url))
    return address


def fetch_policy(
    context: BuildContext,
    address: git.GitAddress,
    *,
    env: Mapping[str, str],
    read_only: Sequence[Path],
    python: Path | None = None,
) -> sandbox.Policy:
    """Return the policy of a sandbox that fetches from the address into the source folder."""
    installer = sandbox.installer_access()
    network = {
        name: value for name, value in installer.env.items() if _NETWORK_VARIABLES.fullmatch(name)
    }
    named_paths = {value for value in network.values() if value.startswith("/")}
    local = [address.folder] if address.folder is not None else []
    return sandbox_run.build_policy(
        context,
        cwd=context.directory.source,
        writable=[context.directory.source],
        read_only=[
            *read_only,
            *local,
            *(bind for bind in installer.read_only if str(bind.target) in named_paths),
        ],
        env={**network, "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull, **env},
        python=python,
        disk_mb=_SOURCE_MB,
    )
