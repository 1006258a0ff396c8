"""Fetch with the git program, including submodules."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from urllib.parse import urljoin, urlsplit

from apps.deployments import git
from apps.deployments.builds import sandbox_run, source
from apps.deployments.builds.build_context import BuildContext, BuildFailed

_GITCONFIG = Path(__file__).with_name("gitconfig")
_MAX_SUBMODULES, _MAX_SUBMODULE_DEPTH = 50, 5


def fetch(context: BuildContext, address: git.GitAddress, ref: str) -> source.Commit:
    """Check out the commit at `ref` and its submodules."""
    repository = _Repository(context, address)
    repository.git("init", "--quiet", ".")
    _fetch(repository, address, ref)
    repository.git("checkout", "--quiet", "--force", "FETCH_HEAD")
    sha, subject = repository.read("log", "-1", "--format=%H%n%s", count=2)
    _fetch_submodules(repository, address.text, "", depth=0)
    return source.Commit(sha, subject)


class _Repository:
    """Runs git in the sandbox, in the source folder."""

    def __init__(self, context: BuildContext, address: git.GitAddress) -> None:
        self.context = context
        schemes = [*git.REMOTE_SCHEMES, *(["file"] if address.folder is not None else [])]
        self.policy = source.fetch_policy(
            context,
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

    def run(
        self, *arguments: str, folder: str = ".", quiet: bool = False
    ) -> sandbox_run.CommandResult:
        argv = ["git", "-C", folder, *arguments]
        return sandbox_run.run_command(
            self.context, self.policy, argv, show=lambda line: bool(line) and not quiet
        )

    def git(self, *arguments: str, folder: str = ".") -> None:
        result = self.run(*arguments, folder=folder)
        if result.code != 0:
            raise BuildFailed(f"git {arguments[0]} failed: {_last_error(result.tail)}")

    def read(self, *arguments: str, count: int, folder: str = ".") -> list[str]:
        """Return the first `count` output lines, without logging them."""
        result = self.run(*arguments, folder=folder, quiet=True)
        if result.code != 0:
            raise BuildFailed(f"git {arguments[0]} failed: {_last_error(result.tail)}")
        return [*result.tail, *[""] * count][:count]


def _fetch(repository: _Repository, address: git.GitAddress, ref: str) -> None:
    result = repository.run(
        *("fetch", "--quiet", "--depth=1", "--no-tags"),
        address.folder.as_uri() if address.folder is not None else address.text,
        ref or "HEAD",
    )
    if result.code != 0:
        raise BuildFailed(_failure_message(result.tail, address.text, ref))


_ERROR_PATTERNS: Sequence[tuple[str, str]] = (
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


def _failure_message(tail: list[str], url: str, ref: str) -> str:
    output = "\n".join(tail)
    for pattern, reason in _ERROR_PATTERNS:
        if re.search(pattern, output):
            return source.FAILURE_MESSAGES[reason].format(url=url, ref=ref or "HEAD")
    return f"The repository {url} cannot be cloned: {_last_error(tail)}"


def _last_error(tail: list[str]) -> str:
    errors = [line for line in tail if line.startswith(("fatal:", "error:", "ERROR:"))]
    return (errors or [line for line in tail if line.strip()] or ["no error message"])[-1]


def _fetch_submodules(repository: _Repository, parent_url: str, folder: str, *, depth: int) -> None:
    """Fetch the submodules of the repository in `folder`, under the same rules."""
    context = repository.context
    if context.directory.file_type(str(PurePosixPath(folder, ".gitmodules"))) != "file":
        return
    if depth == _MAX_SUBMODULE_DEPTH:
        raise BuildFailed(f"Submodules are nested more than {_MAX_SUBMODULE_DEPTH} deep.")
    listing = repository.run(
        *("config", "--file", ".gitmodules", "--get-regexp", r"^submodule\..*\.(path|url)$"),
        folder=folder or ".",
        quiet=True,
    )
    entries: dict[str, dict[str, str]] = {}
    for line in listing.tail:
        key, _, value = line.partition(" ")
        name, _, field = key.removeprefix("submodule.").rpartition(".")
        entries.setdefault(name, {})[field] = value
    if len(entries) > _MAX_SUBMODULES:
        raise BuildFailed(f"The repository has more than {_MAX_SUBMODULES} submodules.")
    for name, entry in entries.items():
        path, url = entry.get("path", ""), entry.get("url", "")
        url = _absolute_url(parent_url, url)
        if url.startswith(("/", "file:")):
            raise BuildFailed(f"The submodule {name} has a local address, which is not allowed.")
        source.check_address(url)
        repository.git(
            *("-c", f"submodule.{name}.url={url}", "submodule", "--quiet", "update", "--init"),
            *("--depth=1", "--", path),
            folder=folder or ".",
        )
        _fetch_submodules(repository, url, str(PurePosixPath(folder, path)), depth=depth + 1)


def _absolute_url(parent: str, url: str) -> str:
    """Return a submodule's absolute address; `../other` is relative to the parent's address."""
    if not url.startswith(("./", "../")):
        return url
    if urlsplit(parent).scheme in ("http", "https"):
        return urljoin(parent.rstrip("/") + "/", url)
    head, separator, steps = parent.rstrip("/"), "/", url
    while steps.startswith(("./", "../")):
        if steps.startswith("../"):
            # `git@host:repository` has a colon in place of a slash.
            head, separator, _ = re.split(r"([/:])(?=[^/:]*$)", head, maxsplit=1)
            steps = steps[3:]
        else:
            steps = steps[2:]
    return f"{head}{separator}{steps}"
