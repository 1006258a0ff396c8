"""SQL that stores the events of resumable runs, fenced by token like all writes of a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from apps.agent_runtime.db.write_batch import StreamChunk

INSERT = """
INSERT INTO agent_server_streamedevents (run_id, position, batches)
SELECT r.id, p.position, p.batches
FROM unnest(%b::uuid[], %b::int[], %b::bigint[], %b::bytea[])
    AS p(run_id, attempt, position, batches)
JOIN agent_server_agentrun r
  ON r.id = p.run_id AND r.attempt = p.attempt AND r.status = 'running'
ON CONFLICT DO NOTHING
"""

# For runs whose stored events exceed the limit.
DELETE_OLDEST = """
DELETE FROM agent_server_streamedevents s
USING unnest(%b::uuid[], %b::bigint[]) AS p(run_id, position)
WHERE s.run_id = p.run_id AND s.position <= p.position
"""


def build_statements(chunks: Sequence[StreamChunk]) -> list[tuple[str, list[list[Any]]]]:
    """The statements, with parameters, that store these chunks."""
    rows = [(*entry.token, entry.position, entry.batches) for entry in chunks]
    statements = [(INSERT, [list(column) for column in zip(*rows, strict=True)])]
    deleted = [(e.token.run_id, e.delete_up_to) for e in chunks if e.delete_up_to is not None]
    if deleted:
        statements.append((DELETE_OLDEST, [list(column) for column in zip(*deleted, strict=True)]))
    return statements
