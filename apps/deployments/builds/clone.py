"""Getting the source: one commit of a repository, fetched inside the sandbox."""

from __future__ import annotations

from apps.deployments import git
from apps.deployments.builds import source, with_dulwich, with_git
from apps.deployments.builds.build_context import Work


def clone(work: Work, *, repo_url: str, ref: str) -> source.Commit:
    """Fetch the commit at `ref` into the workplace's source and say which it is."""
    address = source.reachable(repo_url)
    found = _fetch(work, address, ref)
    commit = source.Commit(found.sha, found.subject[:500])
    work.log.write(f"    {commit.sha[:12]} {commit.subject}")
    return commit


def _fetch(work: Work, address: git.Address, ref: str) -> source.Commit:
    if git.is_installed():
        return with_git.fetch(work, address, ref)
    return with_dulwich.fetch(work, address, ref)
