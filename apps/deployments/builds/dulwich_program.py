"""Run in the sandbox, with Dulwich and nothing of the platform's: fetch one commit, check it out.

    python dulwich_program.py URL REF

Works in the current folder, which is empty. The last line printed is JSON: `sha` and `subject`, or,
with status 1, `reason` and `detail`.
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

_SILENCE_SECONDS = 30
_SHA = re.compile(rb"[0-9a-f]{40}|[0-9a-f]{64}")
# Where git looks for a short name, in its order.
_PLACES = (b"", b"refs/", b"refs/tags/", b"refs/heads/", b"refs/remotes/")
_SIGNS = (
    (r"not our ref|unadvertised object|no such remote ref", "no_ref"),
    (r"unexpected http resp 40[13]", "private"),
    (r"[Rr]epository .*not found|access denied or repository not exported|no such repo", "nowhere"),
    (
        r"resolve|NameResolution|onnection refused|timed out|NewConnection|reset by peer",
        "unreachable",
    ),
)


class Refused(Exception):
    """Nothing can be fetched, for one of the reasons that the platform has words for."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(reason)
        self.reason, self.detail = reason, detail


def main(url: str, ref: str) -> dict[str, str]:
    socket.setdefaulttimeout(_SILENCE_SECONDS)
    client, path = get_transport_and_path_from_url(url, config=_config())
    with Repo.init(".", default_branch=b"main") as repository:
        commit = _fetch(repository, client, path, ref.encode())
        _refuse_submodules(repository, commit)
        repository.refs[HEADREF] = commit.id
        # Neither filters nor line endings are applied: a file is what the commit has.
        build_index_from_tree(".", repository.index_path(), repository.object_store, commit.tree)
    message = commit.message.decode(errors="replace").strip()
    subject = " ".join(re.split(r"\n\s*\n", message, maxsplit=1)[0].split("\n"))
    return {"sha": commit.id.decode(), "subject": subject}


def _config() -> ConfigFile:
    """Our own configuration instead of the machine's or a user's."""
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
        wanted[:] = [_chosen(refs, ref)]
        return wanted

    names = [place + ref for place in _PLACES] if ref else [HEADREF]
    try:
        client.fetch(path, repository, determine_wants=choose, depth=1, ref_prefix=names)
    except KeyError as error:
        if error.args == (ref,):  # a local repository without that commit
            raise Refused("no_ref") from None
        raise
    if not wanted:  # a server that has no refs is not even asked
        raise Refused("no_ref" if ref else "empty")
    found = repository[wanted[0]] if wanted[0] in repository.object_store else None
    while isinstance(found, Tag):
        found = repository[found.object[1]]
    if not isinstance(found, Commit):
        raise Refused("no_ref")
    return found


def _chosen(refs: Mapping[Ref, ObjectID], ref: bytes) -> ObjectID:
    if _SHA.fullmatch(ref):
        return ObjectID(ref)
    for place in _PLACES:
        if found := refs.get(Ref(place + (ref or HEADREF))):
            return found
    raise Refused("no_ref" if ref else "empty")


def _refuse_submodules(repository: Repo, commit: Commit) -> None:
    store = repository.object_store
    try:
        _, sha = tree_lookup_path(store.__getitem__, commit.tree, b".gitmodules")
    except KeyError:
        return
    blob = store[sha]
    assert isinstance(blob, Blob)  # noqa: S101 - anything else is no repository that git takes
    modules = ConfigFile.from_file(io.BytesIO(blob.data))
    names = [name.decode(errors="replace") for _, _, name in parse_submodules(modules)]
    if names:
        raise Refused("submodules", ", ".join(names[:10]))


def _reason(error: Exception) -> Refused:
    match error:
        case Refused():
            return error
        case NotGitRepository():
            return Refused("nowhere")
        case HTTPUnauthorized():
            return Refused("private")
        case MissingCommitError():
            return Refused("no_ref")
        case PermissionError():
            return Refused("unreadable")
        case TimeoutError() | ConnectionError() | socket.gaierror():
            return Refused("unreachable")
    said = str(error) or type(error).__name__
    if isinstance(error, GitProtocolError):
        for pattern, reason in _SIGNS:
            if re.search(pattern, said):
                return Refused(reason, said)
    return Refused("other", f"{type(error).__name__}: {said}")


def _end(answer: Mapping[str, Any], status: int) -> NoReturn:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.exit(status)


if __name__ == "__main__":
    try:
        found = main(*sys.argv[1:])
    except Exception as error:  # noqa: BLE001 - its reader gets the reason in words
        refused = _reason(error)
        _end({"reason": refused.reason, "detail": refused.detail}, 1)
    _end(found, 0)
