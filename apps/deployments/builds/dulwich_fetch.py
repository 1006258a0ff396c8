"""Fetch without the git program: Dulwich, run in the sandbox by the platform's Python."""

from __future__ import annotations

import importlib.util
import os
import re
from pathlib import Path

from apps.core.json import loads
from apps.deployments import git, interpreters
from apps.deployments.builds import sandbox_run, source
from apps.deployments.builds.build_context import BuildContext, BuildFailed

_PROGRAM = Path(__file__).with_name("dulwich_program.py")
# Dulwich and its dependencies.
_PACKAGES = ("dulwich", "typing_extensions", "urllib3")
_SHA = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]+")


def fetch(context: BuildContext, address: git.GitAddress, ref: str) -> source.Commit:
    """Check out the commit at `ref`; `BuildFailed` for features that only git has."""
    if address.scheme == "ssh":
        raise BuildFailed(
            f"{address.text} cannot be cloned: SSH addresses need git, which this machine does not"
            " have. Use the repository's https:// address, or have the operator install git."
        )
    url = address.folder.as_uri() if address.folder is not None else address.text
    packages = [_package_path(name) for name in _PACKAGES]
    python = interpreters.find_interpreter(None)
    rules = source.fetch_policy(
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
        rules,
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


def _parse_answer(result: sandbox_run.CommandResult, url: str, ref: str) -> source.Commit:
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
        return source.Commit(sha, _CONTROL.sub(" ", subject))
    if reason == "submodules":
        raise BuildFailed(
            f"The repository {url} has submodules ({_CONTROL.sub(' ', detail)}), which need git."
            " Have the operator install git on this machine."
        )
    if reason in source.FAILURE_MESSAGES:
        raise BuildFailed(source.FAILURE_MESSAGES[reason].format(url=url, ref=ref or "HEAD"))
    raise BuildFailed(f"The repository {url} cannot be cloned: {detail}")
