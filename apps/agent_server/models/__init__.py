"""What an Agent Server keeps: assistants, threads, agent runs, and the state graphs save.

Clients choose some ids themselves, and a graph's own assistant has the same id in every deployment,
so each client-visible id is unique within its deployment only; rows have a private key besides.
"""

from apps.agent_server.models.assistants import Assistant, AssistantVersion
from apps.agent_server.models.checkpoints import Checkpoint, CheckpointBlob, CheckpointWrite
from apps.agent_server.models.crons import Cron
from apps.agent_server.models.runs import AgentRun, StreamedEvents
from apps.agent_server.models.store import StoreItem, StoreVector
from apps.agent_server.models.threads import Thread
from apps.agent_server.models.webhooks import WebhookDelivery, WebhookSecret

__all__ = [
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
    "WebhookDelivery",
    "WebhookSecret",
]
