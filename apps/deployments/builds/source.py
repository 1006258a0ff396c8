"""Where a revision's source comes from, whichever program fetches it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from apps.deployments import errors, git, sandbox
from apps.deployments.builds import sandbox_run
from apps.deployments.builds.build_context import Work
from apps.deployments.builds.errors import BuildFailed

_SOURCE_MB = 2048
# Where Git reaches the world through, and whom it trusts there; no address of a package index.
_PASSED_ON = re.compile(
    r"(?:https?|all|no)_proxy|SSL_CERT_(?:FILE|DIR)|GIT_SSL_CAINFO", re.IGNORECASE
)

# Why nothing came, in words for whoever deploys.
REASONS = {
    "empty": "The repository {url} is empty: it has no commit.",
    "no_ref": "The repository {url} has no branch, tag or commit {ref}.",
    "private": (
        "There is no public repository at {url}: it does not exist, or it wants a sign-in."
    ),
    "nowhere": "There is no repository at {url}.",
    "ssh_key": (
        "The repository {url} wants an SSH key, which builds have not; try its https:// address."
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


def reachable(url: str) -> git.Address:
    """The address, if builds may go there; otherwise `BuildFailed`."""
    try:
        address = git.parse(url)
        if address.host:
            git.check_reachable(address.host)
    except (errors.UnusableAddress, git.NotReachable) as error:
        raise BuildFailed(f"{url} cannot be cloned. {error}") from None
    try:
        is_there = address.folder is None or address.folder.exists()
    except PermissionError:
        raise BuildFailed(REASONS["unreadable"].format(url=url)) from None
    if not is_there:
        raise BuildFailed(REASONS["nowhere"].format(url=url))
    return address


def rules(
    work: Work,
    address: git.Address,
    *,
    env: Mapping[str, str],
    read_only: Sequence[Path],
    python: Path | None = None,
) -> sandbox.Policy:
    """The sandbox in which a program of ours fetches from the address into the source."""
    installer = sandbox.installer_access()
    network = {name: value for name, value in installer.env.items() if _PASSED_ON.fullmatch(name)}
    named = {value for value in network.values() if value.startswith("/")}
    local = [address.folder] if address.folder is not None else []
    return sandbox_run.policy(
        work,
        cwd=work.place.source,
        writable=[work.place.source],
        read_only=[
            *read_only,
            *local,
            *(bind for bind in installer.read_only if str(bind.target) in named),
        ],
        env={**network, "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull, **env},
        python=python,
        disk_mb=_SOURCE_MB,
    )
