"""Rows related to agents and organizations that no factory creates, each marked with a name."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import uuid4

from django.db import connection
from django.utils.timezone import now

from apps.agent_server.models import (
    A2APushConfig,
    A2ATask,
    AgentRun,
    Assistant,
    AssistantVersion,
    Checkpoint,
    CheckpointBlob,
    CheckpointWrite,
    StoreItem,
    StoreVector,
    StreamedEvents,
    UnreportedAttempt,
)
from apps.agent_server.services import webhooks
from apps.api_keys.models import AuthorizationCode, ClientSession, DeviceLogin, DeviceLoginState
from apps.api_keys.services import issue_key
from apps.billing.models import Payment
from apps.billing.services import get_account, update_account
from apps.deployments.models import Deployment, Revision, RevisionGraph, StatusChange
from apps.deployments.services.environment import replace_variables
from apps.ingest.models import RejectionCount
from apps.organizations.models import InvitationWorkspace, Workspace
from apps.rate_limits.models import LimitFactor
from apps.trace_store.models import RunCount
from apps.tracing.models import Retention
from apps.usage.models import StoredBytes, UsageCounter, UsageDay

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def create_agent_rows(agent: Deployment, run: AgentRun, item: StoreItem, mark: str) -> None:
    """Create rows that belong to a deployment, its revision, a run's thread and a store item."""
    workspace, thread, data = agent.workspace, run.thread, mark.encode()
    revision = agent.active_revision
    fields = {"graph_id": "agent", "name": mark, "description": mark, "metadata": {"a": mark}}
    assistant = Assistant(workspace=workspace, deployment=agent, config={"a": mark}, **fields)
    assistant.save()
    AssistantVersion(workspace=workspace, assistant=assistant, version=1, **fields).save()
    location, blob = {"thread": thread, "namespace": mark}, {"kind": "json", "blob": data}
    checkpoint_id = uuid4()
    Checkpoint.objects.create(checkpoint_id=checkpoint_id, metadata={"a": mark}, **location, **blob)
    CheckpointBlob.objects.create(channel=mark, version="1", **location, **blob)
    CheckpointWrite.objects.create(
        checkpoint_id=checkpoint_id, task_id=mark, index=0, channel=mark, **location, **blob
    )
    StreamedEvents.objects.create(run_id=run.pk, position=1, batches=data)
    UnreportedAttempt(
        workspace=workspace, run_id=run.pk, attempt=1, error=mark, ended_at=now(), due_at=now()
    ).save()
    task = A2ATask(
        workspace=workspace, deployment=agent, thread=thread, context_id=mark, run_id=run.pk,
        assistant_id=run.assistant_id, output={"a": mark},
        history=[{"messageId": mark, "role": "ROLE_USER", "parts": [{"text": mark}]}],
    )  # fmt: skip
    task.save()
    push = A2APushConfig(
        workspace=workspace, task=task, config_id=mark, url=f"https://{mark}.example/"
    )
    push.secrets = {"token": mark, "scheme": "Bearer", "credentials": mark}
    push.save()
    StoreVector.objects.create(item=item, position=0, path=mark, dims=2, embedding=[0.0, 1.0])
    webhooks.create_secret(agent)
    replace_variables(deployment=agent, variables={mark.upper(): mark})
    StatusChange(workspace=workspace, revision=revision, status="DEPLOYED", detail=mark).save()
    Revision.unscoped.filter(pk=revision.pk).update(commit_subject=mark)
    RevisionGraph.unscoped.filter(revision=revision).update(description=mark)


def create_organization_rows(workspace: Workspace, mark: str) -> None:
    """Create key and invitation workspaces, limits, payments and usage of an organization."""
    organization = workspace.organization
    key, _ = issue_key(organization=organization, workspace=workspace, name=mark, scopes=["read"])
    key.workspaces.add(workspace)
    DeviceLogin.objects.create(
        client_id=mark, device_digest=mark.encode(), user_code_digest=mark.encode(),
        state=DeviceLoginState.APPROVED, key=key, interval_seconds=5, expires_at=now(),
    )  # fmt: skip
    AuthorizationCode.objects.create(
        digest=mark.encode(), client_id=mark, redirect_uri=f"https://{mark}.example/",
        challenge=mark, key=key, expires_at=now(),
    )  # fmt: skip
    ClientSession.objects.create(
        key=key, client_id=mark, refresh_digest=mark.encode(), refreshed_at=now(), expires_at=now()
    )
    for invitation in organization.invitations.all():
        InvitationWorkspace.objects.create(
            invitation=invitation, workspace=workspace, role="viewer"
        )
    LimitFactor.objects.create(organization=organization, category=mark, factor=1.0)
    account = get_account(organization.pk)
    update_account(account, {"name": mark, "address": mark, "email": f"{mark}@example.com"})
    Payment.objects.create(account=account, invoice=mark, description=mark, amount=1, method=mark)
    UsageDay(workspace=workspace, day=NOW.date(), runs=1).save()
    StoredBytes(workspace=workspace, kind="store", size=1, measured_at=NOW).save()
    UsageCounter.objects.create(workspace_id=workspace.pk, hour=NOW, process=uuid4(), bytes=1)
    Retention.objects.create(organization=organization, workspace=workspace)
    RunCount(workspace=workspace, project_id=uuid4(), hour=NOW, runs=1).save()
    RejectionCount(workspace=workspace, hour=NOW, reason=mark, count=1).save()


def create_span_rows(workspace: Workspace, mark: str) -> None:
    """Create the rows of OTLP spans whose trace is incomplete."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO ingest_otlptrace (workspace_id, trace_id, first_at, last_at, root_run_id,"
            " root_segment) VALUES (%s, %s, %s, %s, %s, %s)",
            [workspace.pk, uuid4(), NOW, NOW, uuid4(), mark],
        )
        cursor.execute(
            "INSERT INTO ingest_otlpwaitingspan (workspace_id, trace_id, awaits, run_id,"
            " partition_time)"
            " VALUES (%s, %s, %s, %s, %s)",
            [workspace.pk, uuid4(), uuid4(), uuid4(), NOW],
        )
