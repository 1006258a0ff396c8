"""The statements that keep what resumable runs say, fenced like all that is written for a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from apps.agent_runtime.db.write_batch import Said

PUT = """
INSERT INTO agent_server_streamedevents (run_id, position, batches)
SELECT r.id, p.position, p.batches
FROM unnest(%b::uuid[], %b::int[], %b::bigint[], %b::bytea[])
    AS p(run_id, attempt, position, batches)
JOIN agent_server_agentrun r
  ON r.id = p.run_id AND r.attempt = p.attempt AND r.status = 'running'
ON CONFLICT DO NOTHING
"""

# Of runs that say more than is kept.
FORGET = """
DELETE FROM agent_server_streamedevents s
USING unnest(%b::uuid[], %b::bigint[]) AS p(run_id, position)
WHERE s.run_id = p.run_id AND s.position <= p.position
"""


def deed(said: Sequence[Said]) -> list[tuple[str, list[list[Any]]]]:
    """What to execute, statement by statement."""
    rows = [(*entry.token, entry.position, entry.batches) for entry in said]
    made = [(PUT, [list(column) for column in zip(*rows, strict=True)])]
    forgotten = [(e.token.run_id, e.forgotten) for e in said if e.forgotten is not None]
    if forgotten:
        made.append((FORGET, [list(column) for column in zip(*forgotten, strict=True)]))
    return made
