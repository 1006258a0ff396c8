"""Running and pending agent runs with their limits, for the usage and deployment pages."""

from __future__ import annotations

from uuid import UUID

import redis
from django.conf import settings

from apps.agent_server import prepared_sql
from apps.agent_server.messaging.messages import CANCELS
from apps.agent_server.messaging.redis_connection import blocking_client
from apps.agent_server.services import queue_limits
from apps.deployments.models import Deployment
from apps.usage.queues import QueueUsage

MAX_LISTED_DEPLOYMENTS = 20

# The index `agent_run_leased` holds running runs only, at most the slots of all workers.
_COUNT_RUNNING = """
SELECT r.deployment_id, count(*)
FROM agent_server_agentrun r
JOIN organizations_workspace w ON w.id = r.workspace_id
WHERE r.status = 'running' AND w.organization_id = %s
GROUP BY r.deployment_id
"""

# Reads the index `agent_run_queued` for pending runs, `agent_run_leased` for running ones.
_COUNT_OF_DEPLOYMENT = """
SELECT (SELECT count(*) FROM agent_server_agentrun
        WHERE status = 'running' AND workspace_id = %s AND deployment_id = %s),
       (SELECT count(*) FROM agent_server_agentrun
        WHERE status = 'pending' AND workspace_id = %s AND deployment_id = %s)
"""


def share_of_slots(slots: int, percent: int) -> int:
    """Return the share, rounded up so that a worker with few slots uses all of them."""
    return -(-slots * percent // 100)


def count_workers() -> int:
    """Return the number of live workers; each subscribes to the channel of cancelled runs.

    0 while Redis is unavailable.
    """
    try:
        [(_, count)] = blocking_client("slipway-metrics").pubsub_numsub(CANCELS)
    except redis.RedisError:
        return 0
    return int(count)


def _max_running() -> tuple[int, int]:
    """Return how many runs one organization and one deployment may hold while no other runs."""
    workers = count_workers()
    of_organization = share_of_slots(
        settings.AGENT_RUNS_PER_WORKER, settings.AGENT_RUNS_ORGANIZATION_PERCENT
    )
    of_deployment = share_of_slots(of_organization, settings.AGENT_RUNS_DEPLOYMENT_PERCENT)
    return workers * of_organization, workers * of_deployment


def list_usage(organization_id: UUID, workspace_id: UUID) -> list[QueueUsage]:
    """The runs of the organization, and of the workspace's deployments with the most."""
    running: dict[UUID, int] = dict(prepared_sql.fetch_rows(_COUNT_RUNNING, [organization_id]))
    pending = queue_limits.count_pending(organization_id)
    used = running.keys() | pending.keys()
    deployments = Deployment.objects.for_workspace(workspace_id).filter(pk__in=used)
    names = dict(deployments.values_list("pk", "name"))

    def rank(key: UUID) -> tuple[int, str]:
        return -running.get(key, 0) - pending.get(key, 0), names[key]

    of_organization, of_deployment = _max_running()
    return [
        QueueUsage(
            "the organization",
            sum(running.values()),
            of_organization,
            sum(pending.values()),
            settings.MAX_QUEUED_RUNS,
        ),
        *[
            QueueUsage(
                names[key],
                running.get(key, 0),
                of_deployment,
                pending.get(key, 0),
                settings.MAX_QUEUED_RUNS_PER_DEPLOYMENT,
            )
            for key in sorted(names, key=rank)[:MAX_LISTED_DEPLOYMENTS]
        ],
    ]


def get_deployment_usage(workspace_id: UUID, deployment_id: UUID) -> QueueUsage:
    key = [workspace_id, deployment_id]
    running, pending = prepared_sql.fetch_row(_COUNT_OF_DEPLOYMENT, [*key, *key]) or (0, 0)
    _, max_running = _max_running()
    return QueueUsage(
        "this deployment", running, max_running, pending, settings.MAX_QUEUED_RUNS_PER_DEPLOYMENT
    )
