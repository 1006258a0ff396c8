"""The short form of `make test-starvation`: what another organization gets, not how fast."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from uuid import uuid4

import httpx
import pytest

from tests.starvation.trial import Trial, TrialLength, TrialResult
from tests.starvation.victim import QUERY_LIMIT, make_run

pytestmark = pytest.mark.xdist_group("machine")

LENGTH = TrialLength(before=0.5, during=2, after=0.5)
# What the attacker must get: requests of unauthenticated senders end, others are held or refused.
ANSWERS: dict[str, Callable[[dict[str, int]], bool]] = {
    "bodies": lambda answers: answers["ended by the server"] > 0 and answers["held"] > 0,
    "gzips": lambda answers: answers["400"] > 0 and not {"200", "202"} & answers.keys(),
}


@pytest.mark.parametrize("attack", ANSWERS)
def test_other_organization_is_served_and_loses_nothing(trial: Trial, attack: str) -> None:
    async def run() -> tuple[TrialResult, int]:
        return await trial.run(attack, LENGTH), await trial.count_lost()

    earlier = len(trial.victim.acknowledged)
    result, lost = asyncio.run(run())

    assert [phase.failures for phase in result.phases] == [[], [], []]
    assert all(phase.ingest and phase.agent for phase in result.phases)
    assert ANSWERS[attack](result.attacker), result.attacker
    ingested = sum(len(phase.ingest) for phase in result.phases)
    assert len(trial.victim.acknowledged) - earlier == 20 * ingested
    assert lost == 0


def test_lost_and_changed_runs_are_noticed(trial: Trial) -> None:
    """More runs than one query returns, one that was never sent and one with other outputs."""
    victim = trial.victim
    sent = [make_run() for _ in range(QUERY_LIMIT + 20)]
    changed = make_run() | {"outputs": {"answer": "Badly."}}
    unsent_id = str(uuid4())
    httpx.post(
        f"{trial.installation.url}/api/v1/runs/batch",
        headers=victim.headers,
        json={"post": [*sent, changed]},
        timeout=60,
    ).raise_for_status()
    ids = [run["id"] for run in sent]

    missing = asyncio.run(victim.find_missing([*ids[:50], unsent_id, changed["id"], *ids[50:]]))

    assert missing == [unsent_id, changed["id"]]
