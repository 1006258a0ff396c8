"""A short trial: runs of all kinds while each kind of process is killed once, one at a time."""

from __future__ import annotations

import gc

import pytest

from tests.chaos.killer import ROLES
from tests.chaos.trial import trial
from tests.installation import Installation

pytestmark = [
    pytest.mark.lifecycle,
    pytest.mark.xdist_group("machine"),
    # The client's way to say that it was cut off and comes back, and what it leaves open then.
    pytest.mark.filterwarnings("ignore:Request failed, attempting reconnect"),
    pytest.mark.filterwarnings("ignore:Reconnecting without a Last-Event-ID"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

SEED = "24"
MAX_SECONDS = 300


def test_no_run_is_lost_and_no_history_broken_while_processes_are_killed(
    killable: Installation, killable_key: str
) -> None:
    outcome = trial(killable, killable_key, SEED, MAX_SECONDS, rounds=1)
    gc.collect()  # sockets that were cut are this test's, not the next one's

    print(outcome)  # noqa: T201  (the seed and the figures, with `-s`)
    assert outcome.violations == [], str(outcome)
    assert outcome.runs > 25
    assert outcome.kills == dict.fromkeys(ROLES, 1)
