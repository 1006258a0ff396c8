"""Links that open one trace, or one thread, to everybody who has them, and nothing else."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from uuid import UUID, uuid4

from django.db import IntegrityError, transaction
from django.db.models import QuerySet

from apps.audit.actions import Action
from apps.audit.services import Target, record
from apps.feedback.models import Feedback
from apps.feedback.querysets import FeedbackQuerySet
from apps.organizations.models import Workspace
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

MOST_RUNS_SHOWN = 1000


def is_sharing_allowed(workspace_id: UUID) -> bool:
    """Whether the workspace's organization lets its traces be opened to everybody.

    The one place that decides, for making links and for following them. What is deleted is closed.
    """
    return (
        Workspace.objects.present()
        .filter(pk=workspace_id, organization__public_sharing_disabled=False)
        .exists()
    )


def share_trace(
    workspace_id: UUID, run_id: UUID, *, project_id: UUID | None = None, token: UUID | None = None
) -> Share:
    """Open the trace that the run belongs to; a repeat returns the link that is there.

    `RunNotFound` when the workspace has no such run, `ShareTokenTaken` for a token of another
    link, whosever that is.
    """
    run = run_store.get(workspace_id, run_id, project_id=project_id, payloads=NO_PAYLOADS)
    if run is None:
        raise errors.RunNotFound
    return _opened(
        Share(
            workspace_id=workspace_id,
            token=token or uuid4(),
            project_id=run.row.project_id,
            trace_id=run.row.trace_id,
            run_id=run.row.id,
        )
    )


def share_thread(workspace_id: UUID, project_id: UUID, thread_key: str) -> Share:
    """Open all traces of the thread, those to come included; a repeat returns the same link."""
    query = RunQuery(project_ids=[project_id], is_root=True, where=_in_thread(thread_key))
    if not run_store.query(workspace_id, query, limit=1).runs:
        raise errors.ThreadNotFound
    return _opened(Share(workspace_id=workspace_id, project_id=project_id, thread_key=thread_key))


def _opened(share: Share) -> Share:
    if not is_sharing_allowed(share.workspace_id):
        raise errors.SharingForbidden
    try:
        with transaction.atomic():
            share.save(force_insert=True)
            _record(Action.RUN_SHARED, share)
    except IntegrityError:
        there = Share.objects.for_workspace(share.workspace_id).filter(
            project_id=share.project_id, trace_id=share.trace_id, thread_key=share.thread_key
        )
        found = there.first()
        if found is None:
            raise errors.ShareTokenTaken from None
        return found
    return share


def share_of_run(workspace_id: UUID, run_id: UUID) -> Share | None:
    """The link that opens the run's trace; `RunNotFound` when the workspace has no such run."""
    run = run_store.get(workspace_id, run_id, payloads=NO_PAYLOADS)
    if run is None:
        raise errors.RunNotFound
    return (
        Share.objects.for_workspace(workspace_id)
        .filter(project_id=run.row.project_id, trace_id=run.row.trace_id)
        .first()
    )


def unshare_trace(workspace_id: UUID, run_id: UUID, *, project_id: UUID | None = None) -> None:
    """Close the trace of the run, if it is open. Safe to repeat."""
    run = run_store.get(workspace_id, run_id, project_id=project_id, payloads=NO_PAYLOADS)
    if run is None:
        raise errors.RunNotFound
    shares = Share.objects.for_workspace(workspace_id)
    _close(shares.filter(project_id=run.row.project_id, trace_id=run.row.trace_id))


def unshare_tokens(workspace_id: UUID, tokens: Collection[UUID]) -> None:
    """Close these links; those of others, and unknown ones, are passed over."""
    _close(Share.objects.for_workspace(workspace_id).filter(token__in=tokens))


@transaction.atomic
def _close(shares: QuerySet[Share]) -> None:
    for share in shares.select_for_update():
        _record(Action.RUN_UNSHARED, share)
        share.delete()


def _record(action: Action, share: Share) -> None:
    """The link itself is not written down: who reads the log could open it."""
    record(
        action,
        Target("run", share.run_id or "", share.thread_key or ""),
        after={"trace_id": share.trace_id},
        workspace_id=share.workspace_id,
    )


@dataclass(frozen=True, slots=True)
class Shared:
    """What a link opens: all reading goes through here, and reaches nothing else."""

    share: Share

    def query(
        self,
        *,
        run_ids: Sequence[UUID] | None = None,
        is_root: bool | None = None,
        where: Expression | None = None,
    ) -> RunQuery:
        """Some of the runs that the link opens."""
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
            query = replace(query, where_root=_in_thread(share.thread_key))
        return query

    def run(self, run_id: UUID | None, payloads: Collection[Payload] = ALL_PAYLOADS) -> RunDetail:
        """The run, without an id the one that the link begins with; else `RunNotFound`."""
        wanted = run_id or self.share.run_id
        query = self.query(
            run_ids=None if wanted is None else [wanted], is_root=True if wanted is None else None
        )
        found = run_store.query(self.share.workspace_id, query, limit=1, payloads=payloads)
        if not found.runs:
            raise errors.RunNotFound
        return found.runs[0]

    def feedback(self) -> FeedbackQuerySet:
        """What was said about the runs that the link opens."""
        share = self.share
        rows = Feedback.objects.for_workspace(share.workspace_id)
        rows = rows.filter(project_id=share.project_id, run_id__isnull=False)
        if share.thread_key is not None:
            return rows.filter(thread_key=share.thread_key)
        return rows.filter(trace_id=share.trace_id)


def open_link(token: UUID) -> Shared:
    """What the link opens; `NotFound` when there is none, or none any more."""
    shares = Share.objects.across_workspaces(reason="the token itself names the workspace")
    share = shares.filter(token=token, project__deleted_at=None).first()
    if share is None or not is_sharing_allowed(share.workspace_id):
        raise errors.ShareNotFound
    return Shared(share)


@dataclass(frozen=True, slots=True)
class SharedTrace:
    """What the page of a link shows."""

    share: Share
    opened: RunDetail
    """The run that the link begins with, whole."""
    runs: Sequence[RunRow]
    """All runs that it opens, oldest first; of many the first thousand."""


def shared_trace(token: UUID) -> SharedTrace:
    """For the page of a link; `NotFound` when there is nothing to see."""
    shared = open_link(token)
    opened = shared.run(None)
    found = run_store.query(shared.share.workspace_id, shared.query(), limit=MOST_RUNS_SHOWN)
    return SharedTrace(shared.share, opened, [run.row for run in found.runs])


def _in_thread(thread_key: str) -> Expression:
    return filters.parse(f"eq(thread_id, {filters.quote(thread_key)})")
