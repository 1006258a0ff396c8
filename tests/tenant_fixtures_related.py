"""What stands beside agents and people, in rows that no factory makes: each marked with a word."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import uuid4

from django.db import connection

from apps.agent_server.models import (
    AgentRun,
    Assistant,
    AssistantVersion,
    Checkpoint,
    CheckpointBlob,
    CheckpointWrite,
    StoreItem,
    StoreVector,
    StreamedEvents,
)
from apps.agent_server.services import webhooks
from apps.api_keys.services import issue_key
from apps.billing.models import Payment
from apps.billing.services import get_account, update_account
from apps.deployments.models import Deployment, Revision, RevisionGraph, StatusChange
from apps.deployments.services.environment import replace_variables
from apps.ingest.models import RejectionCount
from apps.organizations.models import InvitationWorkspace, Workspace
from apps.rate_limits.models import LimitFactor
from apps.tracing.models import Retention, RunCount
from apps.usage.models import UsageCounter, UsageDay

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def plant_beside_agents(agent: Deployment, run: AgentRun, item: StoreItem, word: str) -> None:
    """Rows that hang on a deployment, its revision, a run's thread and a store's item."""
    workspace, thread, data = agent.workspace, run.thread, word.encode()
    revision = agent.active_revision
    said = {"graph_id": "agent", "name": word, "description": word, "metadata": {"a": word}}
    assistant = Assistant(workspace=workspace, deployment=agent, config={"a": word}, **said)
    assistant.save()
    AssistantVersion(workspace=workspace, assistant=assistant, version=1, **said).save()
    here, blob = {"thread": thread, "namespace": word}, {"kind": "json", "blob": data}
    checkpoint_id = uuid4()
    Checkpoint.objects.create(checkpoint_id=checkpoint_id, metadata={"a": word}, **here, **blob)
    CheckpointBlob.objects.create(channel=word, version="1", **here, **blob)
    CheckpointWrite.objects.create(
        checkpoint_id=checkpoint_id, task_id=word, index=0, channel=word, **here, **blob
    )
    StreamedEvents.objects.create(run_id=run.pk, position=1, batches=data)
    StoreVector.objects.create(item=item, position=0, path=word, dims=2, embedding=[0.0, 1.0])
    webhooks.get_secret(agent)
    replace_variables(deployment=agent, variables={word.upper(): word})
    StatusChange(workspace=workspace, revision=revision, status="DEPLOYED", detail=word).save()
    Revision.unscoped.filter(pk=revision.pk).update(commit_subject=word)
    RevisionGraph.unscoped.filter(revision=revision).update(description=word)


def plant_beside_people(workspace: Workspace, word: str) -> None:
    """Keys by choice, invitations to places, limits, what is paid, and what was used."""
    organization = workspace.organization
    key, _ = issue_key(organization=organization, workspace=workspace, name=word, scopes=["read"])
    key.workspaces.add(workspace)
    for invitation in organization.invitations.all():
        InvitationWorkspace.objects.create(
            invitation=invitation, workspace=workspace, role="viewer"
        )
    LimitFactor.objects.create(organization=organization, category=word, factor=1.0)
    account = get_account(organization.pk)
    update_account(account, {"name": word, "address": word, "email": f"{word}@example.com"})
    Payment.objects.create(account=account, invoice=word, description=word, amount=1, method=word)
    UsageDay(workspace=workspace, day=NOW.date(), runs=1).save()
    UsageCounter.objects.create(workspace_id=workspace.pk, hour=NOW, process=uuid4(), bytes=1)
    Retention.objects.create(organization=organization, workspace=workspace)
    RunCount(workspace=workspace, project_id=uuid4(), hour=NOW, runs=1).save()
    RejectionCount(workspace=workspace, hour=NOW, reason=word, count=1).save()


def plant_spans(workspace: Workspace, word: str) -> None:
    """What is remembered of spans whose trace is not whole."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO tracing_otlptrace (workspace_id, trace_id, first_at, last_at, root_run_id,"
            " root_segment) VALUES (%s, %s, %s, %s, %s, %s)",
            [workspace.pk, uuid4(), NOW, NOW, uuid4(), word],
        )
        cursor.execute(
            "INSERT INTO tracing_otlporphan (workspace_id, trace_id, awaits, run_id,"
            " partition_time)"
            " VALUES (%s, %s, %s, %s, %s)",
            [workspace.pk, uuid4(), uuid4(), uuid4(), NOW],
        )
