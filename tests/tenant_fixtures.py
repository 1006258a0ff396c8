"""One row of each tracing table in a workspace, each marked with a name and a secret."""

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
from apps.trace_store.models import ModelPrice, PendingFileDeletion, RetainedTrace
from apps.trace_store.postgres.postprocess.processor import process_all
from apps.tracing.models import Project, SavedView, Share, TraceDeletion
from tests.factories.tracing import BOUNDARY, multipart_body, read_run, wire_run

Values = dict[str, UUID | str | int]

EXAMPLE, DATASET = UUID(int=0x5E1), UUID(int=0x5E2)


def create_tracing_rows(
    workspace: Workspace,
    mark: str,
    secret: str,
    *,
    ids: tuple[UUID, UUID] | None = None,
    dataset_id: UUID = DATASET,
    example_id: UUID = EXAMPLE,
) -> Values:
    """Create the rows; their names are `mark`, their contents also have the secret.

    `ids` are the ids of the runs, for workspaces whose runs must have equal ids. Returns a value
    for each route parameter and for each id in a request body.
    """
    root = _trace(workspace, mark, secret, example_id, ids or (uuid7(), uuid7()))
    project = Project.objects.for_workspace(workspace).get(name=mark)
    Project.objects.for_workspace(workspace).filter(pk=project.pk).update(
        description=secret, extra={"metadata": {mark: secret}}, reference_dataset_id=dataset_id
    )
    return {
        "run_id": UUID(root["id"]),
        "trace_id": UUID(root["id"]),
        "child_id": _find_child_id(workspace, root["id"]),
        "project_id": project.pk,
        "thread_key": mark,
        "word": mark,
        "dataset_id": dataset_id,
        "example_id": example_id,
        **_feedback(workspace, project, root["id"], mark, secret),
        **_related_rows(workspace, project, UUID(root["id"]), mark, secret),
        **_exports(workspace, project, mark, secret),
        **_charts(workspace, project, mark, secret),
    }


def _trace(
    workspace: Workspace, mark: str, secret: str, example_id: UUID, ids: tuple[UUID, UUID]
) -> dict[str, str]:
    content = {mark: secret}
    fields = {
        "session_name": mark,
        "name": mark,
        "tags": [mark, secret],
        "inputs": content,
        "outputs": content,
        "error": f"{mark} {secret}",
        "serialized": content,
        "events": [{"name": mark, "kwargs": content}],
        "reference_example_id": str(example_id),
        "extra": {
            "metadata": content | {"thread_id": mark, "ls_model_name": mark},
            "more": content,
        },
    }
    root = wire_run(id=ids[0], **fields)
    model = {"usage_metadata": {"input_tokens": 41, "output_tokens": 1, "total_tokens": 42}}
    child = wire_run(root, id=ids[1], **(fields | {"run_type": "llm", "outputs": content | model}))
    body = multipart_body(
        (f"post.{root['id']}", root),
        (f"attachment.{root['id']}.{mark}", secret.encode(), "Content-Type: text/plain"),
        (f"post.{child['id']}", child),
    )
    ingest_runs.ingest(workspace.pk, decoders.decode_multipart(body, BOUNDARY.encode()))
    process_all()
    return root


def _find_child_id(workspace: Workspace, root_id: str) -> UUID:
    _, child = run_store.fetch_trace(workspace.pk, UUID(root_id))
    return child.id


def _feedback(
    workspace: Workspace, project: Project, root_id: str, mark: str, secret: str
) -> Values:
    row = read_run(workspace, root_id).row
    fields = {
        "workspace": workspace,
        "project": project,
        "key": mark,
        "score": 0.5,
        "value": secret,
        "label": secret,
        "comment": secret,
        "correction": {"a": secret},
        "source": {"type": mark, "metadata": {"a": secret}},
        "source_type": mark,
        "extra": {"a": secret},
    }
    on_run = Feedback(
        run_id=row.id,
        trace_id=row.trace_id,
        is_root=True,
        thread_key=mark,
        is_on_thread=True,
        start_time=row.start_time,
        **fields,
    )
    on_run.save()
    Feedback(**fields).save()
    config = FeedbackConfig(
        workspace=workspace, key=mark, config={"type": "freeform", "note": secret}
    )
    config.save()
    formula = FeedbackFormula(
        workspace=workspace,
        project=project,
        key=mark,
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


def _related_rows(
    workspace: Workspace, project: Project, trace_id: UUID, mark: str, secret: str
) -> Values:
    view = SavedView(
        workspace=workspace,
        project=project,
        display_name=mark,
        description=secret,
        filter_string=f'eq(name, "{secret}")',
    )
    price = ModelPrice(
        workspace=workspace,
        name=mark,
        match_pattern=f"{mark}|{secret}",
        provider=secret,
        prompt_cost="0.1",
        completion_cost="0.1",
    )
    deletion = TraceDeletion(
        workspace=workspace,
        project=project,
        trace_ids=[UUID(int=1)],
        metadata={mark: secret},
        status="done",  # a pending deletion would hide the rows
    )
    deferred = DeferredOperation(
        workspace=workspace,
        awaited_run_id=uuid4(),
        run_id=uuid4(),
        is_update=True,
        body=b'{"name":"%s"}' % secret.encode(),
    )
    share = Share(workspace=workspace, project=project, trace_id=trace_id, run_id=trace_id)
    thread_share = Share(workspace=workspace, project=project, thread_key=mark)
    retained = RetainedTrace(workspace=workspace, trace_id=trace_id)
    pending_deletion = PendingFileDeletion(
        workspace=workspace, run_id=uuid4(), path=f"attachments/{secret}"
    )
    for row in (view, price, deletion, deferred, share, thread_share, retained, pending_deletion):
        row.save()
    return {
        "view_id": view.pk,
        "price_id": price.pk,
        "deletion_id": deletion.pk,
        "share_token": share.token,
        "thread_share_token": thread_share.token,
        "name": mark,
    }


def _exports(workspace: Workspace, project: Project, mark: str, secret: str) -> Values:
    now = datetime.now(UTC)
    destination = Destination(
        workspace=workspace, name=mark, config={"bucket_name": mark, "prefix": secret}
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


def _charts(workspace: Workspace, project: Project, mark: str, secret: str) -> Values:
    section = Section(workspace=workspace, title=mark, description=secret, project_id=project.pk)
    section.save()
    chart = Chart(
        workspace=workspace,
        section=section,
        title=mark,
        description=secret,
        metadata={"a": secret},
        common_filters={"filter": f'eq(name, "{secret}")'},
        series=[{"name": secret, "metric": "run_count", "filters": {}}],
    )
    chart.save()
    return {"section_id": section.pk, "chart_id": chart.pk}


def list_feedback_tokens(workspace: Workspace) -> list[str]:
    """Return the secrets of the workspace's feedback tokens."""
    rows = FeedbackToken.objects.for_workspace(workspace)
    return [token_url(row).rsplit("/", 1)[1] for row in rows]
