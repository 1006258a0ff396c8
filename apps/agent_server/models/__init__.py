"""Models of the Agent Server: assistants, threads, agent runs, and the state that graphs save.

Clients choose some ids, and a graph's system assistant has the same id in every deployment. So a
client-visible id is unique within its deployment only, and rows have a separate primary key.
"""

from apps.agent_server.models.a2a import A2ATask
from apps.agent_server.models.a2a_push import A2APushConfig
from apps.agent_server.models.assistants import Assistant, AssistantVersion
from apps.agent_server.models.crons import Cron
from apps.agent_server.models.store import StoreItem, StoreVector
from apps.agent_server.models.threads import (
    AgentRun,
    Checkpoint,
    CheckpointBlob,
    CheckpointWrite,
    StreamedEvents,
    Thread,
    UnreportedAttempt,
)
from apps.agent_server.models.webhooks import WebhookDelivery, WebhookSecret

__all__ = [
    "A2APushConfig",
    "A2ATask",
    "AgentRun",
    "Assistant",
    "AssistantVersion",
    "Checkpoint",
    "CheckpointBlob",
    "CheckpointWrite",
    "Cron",
    "StoreItem",
    "StoreVector",
    "StreamedEvents",
    "Thread",
    "UnreportedAttempt",
    "WebhookDelivery",
    "WebhookSecret",
]
