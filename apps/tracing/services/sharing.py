"""Public links to one trace or one thread."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from uuid import UUID, uuid4

from django.db import IntegrityError, transaction
from django.db.models import QuerySet

from apps.audit.actions import Action
from apps.audit.services import Target, record
from apps.core.tenancy import check_row_limit
from apps.feedback.models import Feedback
from apps.feedback.querysets import FeedbackQuerySet
from apps.organizations.models import Organization, Workspace
from apps.trace_store import (
    ALL_PAYLOADS,
    NO_PAYLOADS,
    Payload,
    RunDetail,
    RunQuery,
    RunRow,
    filters,
    run_store,
)
from apps.trace_store.filters import Expression
from apps.tracing import errors
from apps.tracing.models import Share

MAX_RUNS_SHOWN = 1000
"""The maximum number of runs on the public page of a link."""
MAX_SHARES = 20_000
"""Public links of a workspace to traces and threads."""
REMOVAL_STATEMENT = """
DELETE FROM tracing_share s USING {runs} r
WHERE s.workspace_id = r.workspace_id AND s.project_id = r.project_id
  AND s.trace_id = r.trace_id AND r.is_root
"""
"""Deletes the links to removed traces, see `apps.trace_store.hooks.register_removal`."""


def is_sharing_allowed(workspace_id: UUID) -> bool:
    """Return whether the workspace's organization permits public links.

    Creating and opening a link both check it. False for deleted workspaces.
    """
    return (
        Workspace.objects.present()
        .filter(pk=workspace_id, organization__public_sharing_disabled=False)
        .exists()
    )


def share_trace(
    workspace_id: UUID, run_id: UUID, *, project_id: UUID | None = None, token: UUID | None = None
) -> Share:
    """Share the run's trace; a repeated call returns the existing link.

    Raises `RunNotFound` for an unknown run, and `ShareTokenTaken` if another link has the token.
    """
    row = _find_run(workspace_id, run_id, project_id)
    return _save_share(
        Share(
            workspace_id=workspace_id,
            token=token or uuid4(),
            project_id=row.project_id,
            trace_id=row.trace_id,
            run_id=row.id,
        )
    )


def _find_run(workspace_id: UUID, run_id: UUID, project_id: UUID | None = None) -> RunRow:
    run = run_store.get(workspace_id, run_id, project_id=project_id, payloads=NO_PAYLOADS)
    if run is None:
        raise errors.RunNotFound
    return run.row


def share_thread(workspace_id: UUID, project_id: UUID, thread_key: str) -> Share:
    """Share all present and future traces of the thread; repeated calls return one link."""
    query = RunQuery(
        project_ids=[project_id], is_root=True, where=filters.thread_filter(thread_key)
    )
    if not run_store.query(workspace_id, query, limit=1).runs:
        raise errors.TraceThreadNotFound
    return _save_share(
        Share(workspace_id=workspace_id, project_id=project_id, thread_key=thread_key)
    )


def _save_share(share: Share) -> Share:
    if not is_sharing_allowed(share.workspace_id):
        raise errors.SharingForbidden
    shares = Share.objects.for_workspace(share.workspace_id)
    try:
        with transaction.atomic():
            share.save(force_insert=True)
            check_row_limit(shares, MAX_SHARES, "public links of a workspace")
            _record(Action.RUN_SHARED, share)
    except IntegrityError:
        existing = shares.filter(
            project_id=share.project_id, trace_id=share.trace_id, thread_key=share.thread_key
        )
        row = existing.first()
        if row is None:
            raise errors.ShareTokenTaken from None
        return row
    return share


def find_share_of_run(workspace_id: UUID, run_id: UUID) -> Share | None:
    """Return the link of the run's trace, if any; raises `RunNotFound` for an unknown run."""
    row = _find_run(workspace_id, run_id)
    return (
        Share.objects.for_workspace(workspace_id)
        .filter(project_id=row.project_id, trace_id=row.trace_id)
        .first()
    )


def revoke_trace_link(workspace_id: UUID, run_id: UUID, *, project_id: UUID | None = None) -> None:
    """Revoke the link of the run's trace, if any. Idempotent."""
    row = _find_run(workspace_id, run_id, project_id)
    shares = Share.objects.for_workspace(workspace_id)
    _delete_shares(shares.filter(project_id=row.project_id, trace_id=row.trace_id))


def revoke_links(workspace_id: UUID, tokens: Collection[UUID]) -> None:
    """Revoke the workspace's links with these tokens; other tokens are ignored."""
    _delete_shares(Share.objects.for_workspace(workspace_id).filter(token__in=tokens))


def revoke_organization_links(organization: Organization) -> None:
    """Revoke all public links of the organization's workspaces."""
    for workspace_id in organization.workspaces.values_list("pk", flat=True):
        Share.objects.for_workspace(workspace_id).delete()


@transaction.atomic
def _delete_shares(shares: QuerySet[Share]) -> None:
    for share in shares.select_for_update():
        _record(Action.RUN_UNSHARED, share)
        share.delete()


def _record(action: Action, share: Share) -> None:
    """Record the change without the token, with which readers of the audit log could open it."""
    record(
        action,
        Target("run", share.run_id or "", share.thread_key or ""),
        after={"trace_id": share.trace_id},
        workspace_id=share.workspace_id,
    )


@dataclass(frozen=True, slots=True)
class SharedContent:
    """The runs and feedback that a link exposes; every public read uses this class."""

    share: Share

    def query(
        self,
        *,
        run_ids: Sequence[UUID] | None = None,
        is_root: bool | None = None,
        where: Expression | None = None,
    ) -> RunQuery:
        """Return the query of the shared runs that match the arguments."""
        share = self.share
        query = RunQuery(
            project_ids=[share.project_id],
            trace_id=share.trace_id,
            run_ids=run_ids,
            is_root=is_root,
            where=where,
            oldest_first=True,
        )
        if share.thread_key is not None:
            query = replace(query, where_root=filters.thread_filter(share.thread_key))
        return query

    def run(self, run_id: UUID | None, payloads: Collection[Payload] = ALL_PAYLOADS) -> RunDetail:
        """Return a shared run, by default the link's initial run; raises `RunNotFound`."""
        selected = run_id or self.share.run_id
        query = self.query(
            run_ids=None if selected is None else [selected],
            is_root=True if selected is None else None,
        )
        page = run_store.query(self.share.workspace_id, query, limit=1, payloads=payloads)
        if not page.runs:
            raise errors.RunNotFound
        return page.runs[0]

    def feedback(self) -> FeedbackQuerySet:
        """Return the feedback on the shared runs."""
        share = self.share
        rows = Feedback.objects.for_workspace(share.workspace_id)
        rows = rows.filter(project_id=share.project_id, run_id__isnull=False)
        if share.thread_key is not None:
            return rows.filter(thread_key=share.thread_key)
        return rows.filter(trace_id=share.trace_id)


def resolve_link(token: UUID) -> SharedContent:
    """Return the content of the link; raises `ShareNotFound` if it is unknown or revoked."""
    shares = Share.objects.across_workspaces(reason="the token determines the workspace")
    share = shares.filter(token=token, project__deleted_at=None).first()
    if share is None or not is_sharing_allowed(share.workspace_id):
        raise errors.ShareNotFound
    return SharedContent(share)
