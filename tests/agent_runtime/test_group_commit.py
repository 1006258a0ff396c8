from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

from apps.agent_runtime.db.group_commit import GroupCommitWriter


def _ignore(*_: Any) -> None:
    pass


async def test_flush_returns_when_draining_drops_the_claims_it_waits_for():
    writer = GroupCommitWriter("worker", 30, on_claimed=_ignore, on_stale=_ignore)
    writer.claim([uuid4()])

    writer.accepts_claims = False
    async with asyncio.timeout(60):
        await writer.flush()

    assert writer.claim_count == 0
    await writer.close()
