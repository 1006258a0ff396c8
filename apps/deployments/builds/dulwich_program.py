"""Fetch and check out one commit. Runs in the sandbox with Dulwich, without the platform's code.

    python dulwich_program.py URL REF

The current folder must be empty. The last line of output is JSON: `sha` and `subject`, or, with
exit status 1, `reason` and `detail`.
"""

from __future__ import annotations

import io
import json
import os
import re
import socket
import sys
from collections.abc import Mapping
from typing import Any, NoReturn

from dulwich.client import GitClient, HTTPUnauthorized, get_transport_and_path_from_url
from dulwich.config import ConfigFile, parse_submodules
from dulwich.errors import GitProtocolError, MissingCommitError, NotGitRepository
from dulwich.index import build_index_from_tree
from dulwich.object_store import tree_lookup_path
from dulwich.objects import Blob, Commit, ObjectID, Tag
from dulwich.refs import HEADREF, Ref
from dulwich.repo import Repo

_TIMEOUT_SECONDS = 30
_SHA = re.compile(rb"[0-9a-f]{40}|[0-9a-f]{64}")
# The prefixes that git tries for a short name, in order.
_REF_PREFIXES = (b"", b"refs/", b"refs/tags/", b"refs/heads/", b"refs/remotes/")
_ERROR_PATTERNS = (
    (r"not our ref|unadvertised object|no such remote ref", "no_ref"),
    (r"unexpected http resp 40[13]", "private"),
    (r"[Rr]epository .*not found|access denied or repository not exported|no such repo", "nowhere"),
    (
        r"resolve|NameResolution|onnection refused|timed out|NewConnection|reset by peer",
        "unreachable",
    ),
)


class FetchFailed(Exception):
    """The fetch failed; `reason` is a key of the platform's failure messages."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(reason)
        self.reason, self.detail = reason, detail


def main(url: str, ref: str) -> dict[str, str]:
    socket.setdefaulttimeout(_TIMEOUT_SECONDS)
    client, path = get_transport_and_path_from_url(url, config=_config())
    with Repo.init(".", default_branch=b"main") as repository:
        commit = _fetch(repository, client, path, ref.encode())
        _reject_submodules(repository, commit)
        repository.refs[HEADREF] = commit.id
        # No filters and no line-ending conversion: files are written as committed.
        build_index_from_tree(".", repository.index_path(), repository.object_store, commit.tree)
    message = commit.message.decode(errors="replace").strip()
    subject = " ".join(re.split(r"\n\s*\n", message, maxsplit=1)[0].split("\n"))
    return {"sha": commit.id.decode(), "subject": subject}


def _config() -> ConfigFile:
    """Return a configuration that ignores those of the machine and of users."""
    config = ConfigFile()
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        if name.upper() in os.environ:
            os.environ.setdefault(name, os.environ[name.upper()])
    if authorities := os.environ.get("GIT_SSL_CAINFO"):
        config.set(b"http", b"sslCAInfo", authorities.encode())
    return config


def _fetch(repository: Repo, client: GitClient, path: str, ref: bytes) -> Commit:
    wanted: list[ObjectID] = []

    def choose(refs: Mapping[Ref, ObjectID], depth: int | None = None) -> list[ObjectID]:
        wanted[:] = [_choose_ref(refs, ref)]
        return wanted

    names = [prefix + ref for prefix in _REF_PREFIXES] if ref else [HEADREF]
    try:
        client.fetch(path, repository, determine_wants=choose, depth=1, ref_prefix=names)
    except KeyError as error:
        if error.args == (ref,):  # a local repository does not have the commit
            raise FetchFailed("no_ref") from None
        raise
    if not wanted:  # an empty repository has no refs to choose from
        raise FetchFailed("no_ref" if ref else "empty")
    result = repository[wanted[0]] if wanted[0] in repository.object_store else None
    while isinstance(result, Tag):
        result = repository[result.object[1]]
    if not isinstance(result, Commit):
        raise FetchFailed("no_ref")
    return result


def _choose_ref(refs: Mapping[Ref, ObjectID], ref: bytes) -> ObjectID:
    if _SHA.fullmatch(ref):
        return ObjectID(ref)
    for prefix in _REF_PREFIXES:
        if result := refs.get(Ref(prefix + (ref or HEADREF))):
            return result
    raise FetchFailed("no_ref" if ref else "empty")


def _reject_submodules(repository: Repo, commit: Commit) -> None:
    store = repository.object_store
    try:
        _, sha = tree_lookup_path(store.__getitem__, commit.tree, b".gitmodules")
    except KeyError:
        return
    blob = store[sha]
    assert isinstance(blob, Blob)  # noqa: S101 - git accepts nothing else
    modules = ConfigFile.from_file(io.BytesIO(blob.data))
    names = [name.decode(errors="replace") for _, _, name in parse_submodules(modules)]
    if names:
        raise FetchFailed("submodules", ", ".join(names[:10]))


def _classify(error: Exception) -> FetchFailed:
    match error:
        case FetchFailed():
            return error
        case NotGitRepository():
            return FetchFailed("nowhere")
        case HTTPUnauthorized():
            return FetchFailed("private")
        case MissingCommitError():
            return FetchFailed("no_ref")
        case PermissionError():
            return FetchFailed("unreadable")
        case TimeoutError() | ConnectionError() | socket.gaierror():
            return FetchFailed("unreachable")
    message_text = str(error) or type(error).__name__
    if isinstance(error, GitProtocolError):
        for pattern, reason in _ERROR_PATTERNS:
            if re.search(pattern, message_text):
                return FetchFailed(reason, message_text)
    return FetchFailed("other", f"{type(error).__name__}: {message_text}")


def _exit(answer: Mapping[str, Any], status: int) -> NoReturn:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.exit(status)


if __name__ == "__main__":
    try:
        commit = main(*sys.argv[1:])
    except Exception as error:  # noqa: BLE001 - reported as JSON
        failure = _classify(error)
        _exit({"reason": failure.reason, "detail": failure.detail}, 1)
    _exit(commit, 0)
