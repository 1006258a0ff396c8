"""Fetching with the program git: its own configuration, submodules, any protocol it knows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from urllib.parse import urljoin, urlsplit

from apps.deployments import git
from apps.deployments.builds import sandbox_run, source
from apps.deployments.builds.build_context import Work
from apps.deployments.builds.errors import BuildFailed

_GITCONFIG = Path(__file__).with_name("gitconfig")
_MOST_SUBMODULES, _DEEPEST = 50, 5


def fetch(work: Work, address: git.Address, ref: str) -> source.Commit:
    """Check out the commit at `ref` and its submodules."""
    repository = _Repository(work, address)
    repository.git("init", "--quiet", ".")
    _fetch(repository, address, ref)
    repository.git("checkout", "--quiet", "--force", "FETCH_HEAD")
    sha, subject = repository.read("log", "-1", "--format=%H%n%s", count=2)
    _submodules(repository, address.text, "", depth=0)
    return source.Commit(sha, subject)


class _Repository:
    """Git in the sandbox, in the workplace's source."""

    def __init__(self, work: Work, address: git.Address) -> None:
        self.work = work
        schemes = [*git.REMOTE_SCHEMES, *(["file"] if address.folder is not None else [])]
        self.rules = source.rules(
            work,
            address,
            read_only=[_GITCONFIG],
            env={
                "GIT_ALLOW_PROTOCOL": ":".join(schemes),
                "GIT_ASKPASS": "/bin/false",
                "GIT_CONFIG_GLOBAL": str(_GITCONFIG),
                "GIT_LFS_SKIP_SMUDGE": "1",
                "GIT_SSH_COMMAND": (
                    "ssh -F /dev/null -o BatchMode=yes -o StrictHostKeyChecking=accept-new"
                    " -o UserKnownHostsFile=/tmp/known_hosts -o ConnectTimeout=20"
                ),
                "GIT_TERMINAL_PROMPT": "0",
            },
        )

    def run(self, *words: str, folder: str = ".", quiet: bool = False) -> sandbox_run.Outcome:
        argv = ["git", "-C", folder, *words]
        return sandbox_run.run(
            self.work, self.rules, argv, show=lambda line: bool(line) and not quiet
        )

    def git(self, *words: str, folder: str = ".") -> None:
        outcome = self.run(*words, folder=folder)
        if outcome.code != 0:
            raise BuildFailed(f"git {words[0]} failed: {_last_words(outcome.tail)}")

    def read(self, *words: str, count: int, folder: str = ".") -> list[str]:
        """The first lines of the answer, which stay out of the log."""
        outcome = self.run(*words, folder=folder, quiet=True)
        if outcome.code != 0:
            raise BuildFailed(f"git {words[0]} failed: {_last_words(outcome.tail)}")
        return [*outcome.tail, *[""] * count][:count]


def _fetch(repository: _Repository, address: git.Address, ref: str) -> None:
    outcome = repository.run(
        *("fetch", "--quiet", "--depth=1", "--no-tags"),
        address.folder.as_uri() if address.folder is not None else address.text,
        ref or "HEAD",
    )
    if outcome.code != 0:
        raise BuildFailed(_why(outcome.tail, address.text, ref))


_SIGNS: Sequence[tuple[str, str]] = (
    (r"couldn't find remote ref HEAD", "empty"),
    (r"couldn't find remote ref|not our ref|unadvertised object|no such remote ref", "no_ref"),
    (
        r"could not read Username|Authentication failed|terminal prompts disabled|HTTP 40[13]",
        "private",
    ),
    (
        r"[Rr]epository .*not found|does not appear to be a git repository|error: 404|not exported",
        "nowhere",
    ),
    (r"Permission denied \(|Host key verification failed", "ssh_key"),
    (r"Permission denied|detected dubious ownership", "unreadable"),
    (
        r"resolve host|unable to look up|onnection (refused|timed out|reset)|ailed to connect",
        "unreachable",
    ),
)


def _why(tail: list[str], url: str, ref: str) -> str:
    said = "\n".join(tail)
    for pattern, reason in _SIGNS:
        if re.search(pattern, said):
            return source.REASONS[reason].format(url=url, ref=ref or "HEAD")
    return f"The repository {url} cannot be cloned: {_last_words(tail)}"


def _last_words(tail: list[str]) -> str:
    serious = [line for line in tail if line.startswith(("fatal:", "error:", "ERROR:"))]
    return (serious or [line for line in tail if line.strip()] or ["it gave no reason"])[-1]


def _submodules(repository: _Repository, parent_url: str, folder: str, *, depth: int) -> None:
    """Fetch the submodules of the repository in `folder`, held to the same rules as itself."""
    work = repository.work
    if work.place.kind(str(PurePosixPath(folder, ".gitmodules"))) != "file":
        return
    if depth == _DEEPEST:
        raise BuildFailed(f"Submodules are nested more than {_DEEPEST} deep.")
    found = repository.run(
        *("config", "--file", ".gitmodules", "--get-regexp", r"^submodule\..*\.(path|url)$"),
        folder=folder or ".",
        quiet=True,
    )
    entries: dict[str, dict[str, str]] = {}
    for line in found.tail:
        key, _, value = line.partition(" ")
        name, _, what = key.removeprefix("submodule.").rpartition(".")
        entries.setdefault(name, {})[what] = value
    if len(entries) > _MOST_SUBMODULES:
        raise BuildFailed(f"The repository has more than {_MOST_SUBMODULES} submodules.")
    for name, entry in entries.items():
        path, url = entry.get("path", ""), entry.get("url", "")
        url = _absolute(parent_url, url)
        if url.startswith(("/", "file:")):
            raise BuildFailed(f"The submodule {name} has a local address, which is not taken.")
        source.reachable(url)
        repository.git(
            *("-c", f"submodule.{name}.url={url}", "submodule", "--quiet", "update", "--init"),
            *("--depth=1", "--", path),
            folder=folder or ".",
        )
        _submodules(repository, url, str(PurePosixPath(folder, path)), depth=depth + 1)


def _absolute(parent: str, url: str) -> str:
    """A submodule's address; `../other` is beside its parent's."""
    if not url.startswith(("./", "../")):
        return url
    if urlsplit(parent).scheme in ("http", "https"):
        return urljoin(parent.rstrip("/") + "/", url)
    head, between, steps = parent.rstrip("/"), "/", url
    while steps.startswith(("./", "../")):
        if steps.startswith("../"):
            # `git@host:repository` has a colon where others have a slash.
            head, between, _ = re.split(r"([/:])(?=[^/:]*$)", head, maxsplit=1)
            steps = steps[3:]
        else:
            steps = steps[2:]
    return f"{head}{between}{steps}"
