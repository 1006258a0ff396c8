"""Getting the source: one commit of a repository, fetched inside the sandbox."""

from __future__ import annotations

from apps.deployments import git
from apps.deployments.builds import origin, with_dulwich, with_git
from apps.deployments.builds.work import Work


def clone(work: Work, *, repo_url: str, ref: str) -> origin.Commit:
    """Fetch the commit at `ref` into the workplace's source and say which it is."""
    address = origin.reachable(repo_url)
    found = _fetch(work, address, ref)
    commit = origin.Commit(found.sha, found.subject[:500])
    work.log.write(f"    {commit.sha[:12]} {commit.subject}")
    return commit


def _fetch(work: Work, address: git.Address, ref: str) -> origin.Commit:
    if git.is_installed():
        return with_git.fetch(work, address, ref)
    return with_dulwich.fetch(work, address, ref)
