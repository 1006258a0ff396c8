"""Fetching on a machine without git: Dulwich, run in the same sandbox by the platform's Python."""

from __future__ import annotations

import importlib.util
import os
import re
from pathlib import Path

from apps.core.json import loads
from apps.deployments import git
from apps.deployments.builds import interpreters, sandbox_run, source
from apps.deployments.builds.build_context import Work
from apps.deployments.builds.errors import BuildFailed

_PROGRAM = Path(__file__).with_name("dulwich_program.py")
# Dulwich and all that it imports.
_PACKAGES = ("dulwich", "typing_extensions", "urllib3")
_SHA = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]+")


def fetch(work: Work, address: git.Address, ref: str) -> source.Commit:
    """Check out the commit at `ref`. What only git can do is refused in words."""
    if address.scheme == "ssh":
        raise BuildFailed(
            f"{address.text} cannot be cloned: this machine has no git, which SSH addresses need."
            " Use the repository's https:// address, or have the operator install git."
        )
    url = address.folder.as_uri() if address.folder is not None else address.text
    packages = [_place(name) for name in _PACKAGES]
    python = interpreters.find(None)
    rules = source.rules(
        work,
        address,
        read_only=[_PROGRAM, *packages],
        env={
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONPATH": os.pathsep.join({str(package.parent) for package in packages}),
        },
        python=python,
    )
    outcome = sandbox_run.run(
        work,
        rules,
        [str(python), "-P", "-S", str(_PROGRAM), url, ref],
        # Its last line is the answer, for us alone.
        show=lambda line: not line.startswith("{"),
    )
    return _commit(outcome, address.text, ref)


def _place(name: str) -> Path:
    """A package's folder or a module's file, as this process would import it."""
    spec = importlib.util.find_spec(name)
    assert spec is not None and spec.origin is not None  # noqa: S101, PT018 - a dependency
    file = Path(spec.origin).resolve()
    return file.parent if spec.submodule_search_locations else file


def _commit(outcome: sandbox_run.Outcome, url: str, ref: str) -> source.Commit:
    """The answer. Who wrote it read a stranger's repository, so it is looked at closely."""
    last = outcome.tail[-1] if outcome.tail else ""
    try:
        answer = loads(last)
        sha, subject = str(answer.get("sha")), str(answer.get("subject"))
        reason, detail = str(answer.get("reason")), str(answer.get("detail"))
    except (ValueError, AttributeError):
        ended = last.strip() or f"it ended with status {outcome.code}"
        raise BuildFailed(f"The repository {url} cannot be cloned: {ended}") from None
    if outcome.code == 0 and _SHA.fullmatch(sha):
        return source.Commit(sha, _CONTROL.sub(" ", subject))
    if reason == "submodules":
        raise BuildFailed(
            f"The repository {url} has submodules ({_CONTROL.sub(' ', detail)}), and this machine"
            " has no git, which they need. Have the operator install git."
        )
    if reason in source.REASONS:
        raise BuildFailed(source.REASONS[reason].format(url=url, ref=ref or "HEAD"))
    raise BuildFailed(f"The repository {url} cannot be cloned: {detail}")
