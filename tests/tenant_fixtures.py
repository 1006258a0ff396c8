"""A row of every kind that tracing keeps, in one workspace, each marked with a word."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

from apps.core.ids import uuid7
from apps.exports.models import BulkExport, Destination, ExportPart
from apps.feedback.models import Feedback, FeedbackConfig, FeedbackFormula, FeedbackToken
from apps.feedback.services.tokens import TokenRequest, issue_tokens, token_url
from apps.ingest import decoders
from apps.ingest.models import DeferredOperation
from apps.ingest.services import ingest_runs
from apps.monitoring.models import Chart, Section
from apps.organizations.models import Workspace
from apps.trace_store import run_store
from apps.trace_store.postgres.postprocess.processor import process_all
from apps.tracing.models import (
    ModelPrice,
    PendingFileDeletion,
    Project,
    RetainedTrace,
    SavedView,
    Share,
    TraceDeletion,
)
from tests.factories.tracing import BOUNDARY, form, read, wire_run

Values = dict[str, UUID | str | int]

EXAMPLE, DATASET = UUID(int=0x5E1), UUID(int=0x5E2)


def plant(
    workspace: Workspace,
    word: str,
    secret: str,
    *,
    ids: tuple[UUID, UUID] | None = None,
    dataset_id: UUID = DATASET,
    example_id: UUID = EXAMPLE,
) -> Values:
    """Make the rows; names are `word`, contents have the secret too.

    `ids` are those of the runs, for workspaces whose runs shall be called the same. Returns a
    value for each parameter of a route, and the ids that bodies may name.
    """
    root = _trace(workspace, word, secret, example_id, ids or (uuid7(), uuid7()))
    project = Project.objects.for_workspace(workspace).get(name=word)
    Project.objects.for_workspace(workspace).filter(pk=project.pk).update(
        description=secret, extra={"metadata": {word: secret}}, reference_dataset_id=dataset_id
    )
    return {
        "run_id": UUID(root["id"]),
        "trace_id": UUID(root["id"]),
        "child_id": _child_of(workspace, root["id"]),
        "project_id": project.pk,
        "thread_key": word,
        "word": word,
        "dataset_id": dataset_id,
        "example_id": example_id,
        **_feedback(workspace, project, root["id"], word, secret),
        **_beside(workspace, project, UUID(root["id"]), word, secret),
        **_exports(workspace, project, word, secret),
        **_charts(workspace, project, word, secret),
    }


def _trace(
    workspace: Workspace, word: str, secret: str, example_id: UUID, ids: tuple[UUID, UUID]
) -> dict[str, str]:
    both = {word: secret}
    said = {
        "session_name": word,
        "name": word,
        "tags": [word, secret],
        "inputs": both,
        "outputs": both,
        "error": f"{word} {secret}",
        "serialized": both,
        "events": [{"name": word, "kwargs": both}],
        "reference_example_id": str(example_id),
        "extra": {"metadata": both | {"thread_id": word, "ls_model_name": word}, "more": both},
    }
    root = wire_run(id=ids[0], **said)
    model = {"usage_metadata": {"input_tokens": 41, "output_tokens": 1, "total_tokens": 42}}
    child = wire_run(root, id=ids[1], **(said | {"run_type": "llm", "outputs": both | model}))
    body = form(
        (f"post.{root['id']}", root),
        (f"attachment.{root['id']}.{word}", secret.encode(), "Content-Type: text/plain"),
        (f"post.{child['id']}", child),
    )
    ingest_runs.ingest(workspace.pk, decoders.decode_multipart(body, BOUNDARY.encode()))
    process_all()
    return root


def _child_of(workspace: Workspace, root_id: str) -> UUID:
    _, child = run_store.trace(workspace.pk, UUID(root_id))
    return child.id


def _feedback(
    workspace: Workspace, project: Project, root_id: str, word: str, secret: str
) -> Values:
    row = read(workspace, root_id).row
    said = {
        "workspace": workspace,
        "project": project,
        "key": word,
        "score": 0.5,
        "value": secret,
        "label": secret,
        "comment": secret,
        "correction": {"a": secret},
        "source": {"type": word, "metadata": {"a": secret}},
        "source_type": word,
        "extra": {"a": secret},
    }
    on_run = Feedback(
        run_id=row.id,
        trace_id=row.trace_id,
        is_root=True,
        thread_key=word,
        is_on_thread=True,
        start_time=row.start_time,
        **said,
    )
    on_run.save()
    Feedback(**said).save()
    config = FeedbackConfig(
        workspace=workspace, key=word, config={"type": "freeform", "note": secret}
    )
    config.save()
    formula = FeedbackFormula(
        workspace=workspace,
        project=project,
        key=word,
        aggregation="sum",
        parts=[{"part_type": "weighted_key", "key": secret, "weight": 1}],
    )
    formula.save()
    later = datetime.now(UTC) + timedelta(hours=1)
    (token,) = issue_tokens(
        workspace.pk, [TokenRequest(run_id=row.id, key=secret, expires_at=later)]
    )
    return {
        "feedback_id": on_run.pk,
        "config_id": config.pk,
        "formula_id": formula.pk,
        "feedback_token_id": token.pk,
    }


def _beside(
    workspace: Workspace, project: Project, trace_id: UUID, word: str, secret: str
) -> Values:
    view = SavedView(
        workspace=workspace,
        project=project,
        display_name=word,
        description=secret,
        filter_string=f'eq(name, "{secret}")',
    )
    price = ModelPrice(
        workspace=workspace,
        name=word,
        match_pattern=f"{word}|{secret}",
        provider=secret,
        prompt_cost="0.1",
        completion_cost="0.1",
    )
    deletion = TraceDeletion(
        workspace=workspace,
        project=project,
        trace_ids=[UUID(int=1)],
        metadata={word: secret},
        status="done",  # one that is under way would hide what is planted
    )
    held = DeferredOperation(
        workspace=workspace,
        awaited_run_id=uuid4(),
        run_id=uuid4(),
        body=b'{"name":"%s"}' % secret.encode(),
    )
    share = Share(workspace=workspace, project=project, trace_id=trace_id, run_id=trace_id)
    of_thread = Share(workspace=workspace, project=project, thread_key=word)
    kept = RetainedTrace(workspace=workspace, trace_id=trace_id)
    doomed = PendingFileDeletion(workspace=workspace, run_id=uuid4(), path=f"attachments/{secret}")
    for row in (view, price, deletion, held, share, of_thread, kept, doomed):
        row.save()
    return {
        "view_id": view.pk,
        "price_id": price.pk,
        "deletion_id": deletion.pk,
        "share_token": share.token,
        "thread_share_token": of_thread.token,
        "name": word,
    }


def _exports(workspace: Workspace, project: Project, word: str, secret: str) -> Values:
    now = datetime.now(UTC)
    destination = Destination(
        workspace=workspace, name=word, config={"bucket_name": word, "prefix": secret}
    )
    destination.set_credentials({"access_key_id": secret, "secret_access_key": secret})
    destination.save()
    export = BulkExport(
        workspace=workspace,
        destination=destination,
        project=project,
        start_time=now,
        end_time=now,
        filter=f'eq(name, "{secret}")',
        status="Completed",
    )
    export.save()
    part = ExportPart(
        workspace=workspace,
        export=export,
        start_time=now,
        end_time=now,
        status="Completed",
        problems=[{"detail": secret}],
    )
    part.save()
    return {"destination_id": destination.pk, "export_id": export.pk, "part_id": part.pk}


def _charts(workspace: Workspace, project: Project, word: str, secret: str) -> Values:
    section = Section(workspace=workspace, title=word, description=secret, project_id=project.pk)
    section.save()
    chart = Chart(
        workspace=workspace,
        section=section,
        title=word,
        description=secret,
        metadata={"a": secret},
        common_filters={"filter": f'eq(name, "{secret}")'},
        series=[{"name": secret, "metric": "run_count", "filters": {}}],
    )
    chart.save()
    return {"section_id": section.pk, "chart_id": chart.pk}


def tokens(workspace: Workspace) -> list[str]:
    """The secrets of the feedback tokens, as their owner sees them."""
    rows = FeedbackToken.objects.for_workspace(workspace)
    return [token_url(row).rsplit("/", 1)[1] for row in rows]
