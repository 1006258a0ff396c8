"""Fetch one commit of a repository in the sandbox, with git or, without it, Dulwich.

Only git fetches submodules and SSH addresses.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from urllib.parse import urljoin, urlsplit

from apps.core.json import loads
from apps.deployments import errors, git, interpreters, networks, sandbox
from apps.deployments.builds import sandbox_run
from apps.deployments.builds.build_context import BuildContext, BuildFailed

_SOURCE_MB = 2048

FAILURE_MESSAGES = {
    "empty": "The repository {url} is empty: it has no commit.",
    "no_ref": "The repository {url} has no branch, tag or commit {ref}.",
    "private": (
        "There is no public repository at {url}: it does not exist, or it requires a sign-in."
    ),
    "no_repository": "There is no repository at {url}.",
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
class ClonedCommit:
    sha: str
    subject: str


def check_address(url: str, uid: int | None = None) -> git.GitAddress:
    """Return the parsed address, or raise `BuildFailed` if builds may not fetch from it.

    A local repository must be readable by the user `uid`, by default this process's own.
    """
    try:
        address = git.parse_address(url)
        if address.host:
            git.check_reachable(address.host)
    except (errors.InvalidGitAddress, git.HostNotReachable) as error:
        raise BuildFailed(f"{url} cannot be cloned. {error}") from None
    if address.folder is not None and not git.is_sample(address.folder):
        reason = _find_access_failure(address.folder, uid)
        if reason is not None:
            raise BuildFailed(FAILURE_MESSAGES[reason].format(url=url))
    return address


_ACCESS_PROBE = 'test -r "$1" && test -x "$1" && exit 0; test -e "$1" && exit 3; exit 4'
_ACCESS_FAILURES = {0: None, 3: "unreadable"}


def _find_access_failure(folder: Path, uid: int | None) -> str | None:
    """Return why the user cannot read the folder, as a key of `FAILURE_MESSAGES`.

    The sandbox binds the folder as root, which ignores the rights of the folders above. A folder
    below one that the user may not enter is reported like a missing one.
    """
    probe = subprocess.run(  # noqa: S603 -- a constant script; the folder is its argument
        ["/bin/sh", "-c", _ACCESS_PROBE, "sh", str(folder)],
        cwd="/",
        env={},
        stdin=subprocess.DEVNULL,
        check=False,
        user=uid,
        group=uid,
        extra_groups=None if uid is None else (),
    )
    return _ACCESS_FAILURES.get(probe.returncode, "no_repository")


def fetch_policy(
    context: BuildContext,
    address: git.GitAddress,
    *,
    env: Mapping[str, str],
    read_only: Sequence[Path],
    python: Path | None = None,
) -> sandbox.Policy:
    """Return the policy of a sandbox that fetches from the address into the source folder."""
    network = sandbox.network_access()
    tunnel_env: dict[str, str] = {}
    if networks.network() is sandbox.Network.PROXIED:
        # For this address and those of submodules.
        python = python or interpreters.find_interpreter(None)
        read_only = [*read_only, _TUNNEL]
        path = f"{python.parent}:/usr/local/bin:/usr/bin:/bin"
        tunnel_env = {"GIT_PROXY_COMMAND": str(_TUNNEL), "PATH": path}
        if "GIT_SSH_COMMAND" in env:
            ssh = f"{env['GIT_SSH_COMMAND']} -o 'ProxyCommand={_TUNNEL} %h %p'"
            tunnel_env["GIT_SSH_COMMAND"] = ssh
    local = [address.folder] if address.folder is not None else []
    return sandbox_run.build_policy(
        context,
        cwd=context.directory.source,
        writable=[context.directory.source],
        read_only=[*read_only, *local, *network.read_only],
        env={
            **network.env,
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            **env,
            **tunnel_env,
        },
        python=python,
        disk_mb=_SOURCE_MB,
        egress=networks.clone_egress(),
    )


def clone(context: BuildContext, *, repo_url: str, ref: str) -> ClonedCommit:
    """Fetch the commit at `ref` into the source folder and return it."""
    address = check_address(repo_url, uid=context.directory.uid)
    fetch = fetch_with_git if git.is_installed() else fetch_with_dulwich
    commit = fetch(context, address, ref)
    commit = ClonedCommit(commit.sha, commit.subject[:500])
    context.log.write(f"    {commit.sha[:12]} {commit.subject}")
    return commit


_PROGRAM = Path(__file__).with_name("dulwich_program.py")
_TUNNEL = Path(__file__).with_name("git_tunnel.py")
# Dulwich and its dependencies.
_PACKAGES = ("dulwich", "typing_extensions", "urllib3")
_SHA = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]+")


def fetch_with_dulwich(context: BuildContext, address: git.GitAddress, ref: str) -> ClonedCommit:
    """Check out the commit at `ref`; `BuildFailed` for features that only git has."""
    if address.scheme == "ssh":
        raise BuildFailed(
            f"{address.text} cannot be cloned: SSH addresses need git, which this machine does not"
            " have. Use the repository's https:// address, or have the operator install git."
        )
    url = address.folder.as_uri() if address.folder is not None else address.text
    packages = [_package_path(name) for name in _PACKAGES]
    python = interpreters.find_interpreter(None)
    policy = fetch_policy(
        context,
        address,
        read_only=[_PROGRAM, *packages],
        env={
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONPATH": os.pathsep.join({str(package.parent) for package in packages}),
        },
        python=python,
    )
    result = sandbox_run.run_command(
        context,
        policy,
        [str(python), "-P", "-S", str(_PROGRAM), url, ref],
        # The last line is the JSON result, not part of the log.
        show=lambda line: not line.startswith("{"),
    )
    return _parse_answer(result, address.text, ref)


def _package_path(name: str) -> Path:
    """Return a package's folder or a module's file, as this process would import it."""
    spec = importlib.util.find_spec(name)
    assert spec is not None and spec.origin is not None  # noqa: S101, PT018 - a dependency
    file = Path(spec.origin).resolve()
    return file.parent if spec.submodule_search_locations else file


def _parse_answer(result: sandbox_run.CommandResult, url: str, ref: str) -> ClonedCommit:
    """Parse and validate the result: the program has read an untrusted repository."""
    last = result.tail[-1] if result.tail else ""
    try:
        answer = loads(last)
        sha, subject = str(answer.get("sha")), str(answer.get("subject"))
        reason, detail = str(answer.get("reason")), str(answer.get("detail"))
    except (ValueError, AttributeError):
        message = last.strip() or f"it ended with status {result.code}"
        raise BuildFailed(f"The repository {url} cannot be cloned: {message}") from None
    if result.code == 0 and _SHA.fullmatch(sha):
        return ClonedCommit(sha, _CONTROL.sub(" ", subject))
    if reason == "submodules":
        raise BuildFailed(
            f"The repository {url} has submodules ({_CONTROL.sub(' ', detail)}), which need git."
            " Have the operator install git on this machine."
        )
    if reason in FAILURE_MESSAGES:
        raise BuildFailed(FAILURE_MESSAGES[reason].format(url=url, ref=ref or "HEAD"))
    raise BuildFailed(f"The repository {url} cannot be cloned: {detail}")


_GITCONFIG = Path(__file__).with_name("gitconfig")
_MAX_SUBMODULES, _MAX_SUBMODULE_DEPTH = 50, 5


def fetch_with_git(context: BuildContext, address: git.GitAddress, ref: str) -> ClonedCommit:
    """Check out the commit at `ref` and its submodules."""
    repository = _Repository(context, address)
    repository.git("init", "--quiet", ".")
    _fetch_commit(repository, address, ref)
    repository.git("checkout", "--quiet", "--force", "FETCH_HEAD")
    sha, subject = repository.read("log", "-1", "--format=%H%n%s", count=2)
    _fetch_submodules(repository, address.text, "", depth=0)
    return ClonedCommit(sha, subject)


class _Repository:
    """Runs git in the sandbox, in the source folder."""

    def __init__(self, context: BuildContext, address: git.GitAddress) -> None:
        self.context = context
        schemes = [*git.REMOTE_SCHEMES, *(["file"] if address.folder is not None else [])]
        self.policy = fetch_policy(
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
        self,
        *arguments: str,
        folder: str = ".",
        quiet: bool = False,
        tail_lines: int = sandbox_run.TAIL_LINES,
    ) -> sandbox_run.CommandResult:
        return sandbox_run.run_command(
            self.context,
            self.policy,
            ["git", "-C", folder, *arguments],
            show=lambda line: bool(line) and not quiet,
            tail_lines=tail_lines,
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


def _fetch_commit(repository: _Repository, address: git.GitAddress, ref: str) -> None:
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
        "no_repository",
    ),
    (r"Permission denied \(|Host key verification failed", "ssh_key"),
    (r"Permission denied|detected dubious ownership", "unreadable"),
    (
        r"resolve host|unable to look up|onnection (refused|timed out|reset)|ailed to connect",
        "unreachable",
    ),
    (
        r"error: 50[24]|tunnel failed, response|HTTP code \d+ from proxy",
        "unreachable",
    ),
)


def _failure_message(tail: list[str], url: str, ref: str) -> str:
    output = "\n".join(tail)
    for pattern, reason in _ERROR_PATTERNS:
        if re.search(pattern, output):
            return FAILURE_MESSAGES[reason].format(url=url, ref=ref or "HEAD")
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
        # Two lines for each submodule, and one submodule more than allowed.
        tail_lines=2 * (_MAX_SUBMODULES + 1),
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
        check_address(url)
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
