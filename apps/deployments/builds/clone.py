"""Fetch one commit of a repository inside the sandbox."""

from __future__ import annotations

from apps.deployments import git
from apps.deployments.builds import dulwich_fetch, git_fetch, source
from apps.deployments.builds.build_context import BuildContext


def clone(context: BuildContext, *, repo_url: str, ref: str) -> source.Commit:
    """Fetch the commit at `ref` into the source folder and return it."""
    address = source.check_address(repo_url)
    fetched = _fetch(context, address, ref)
    commit = source.Commit(fetched.sha, fetched.subject[:500])
    context.log.write(f"    {commit.sha[:12]} {commit.subject}")
    return commit


def _fetch(context: BuildContext, address: git.GitAddress, ref: str) -> source.Commit:
    if git.is_installed():
        return git_fetch.fetch(context, address, ref)
    return dulwich_fetch.fetch(context, address, ref)
