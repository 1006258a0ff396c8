"""A short chaos trial: runs of all kinds while random processes are killed one at a time."""

from __future__ import annotations

import gc

import pytest

from tests.chaos.trial import TrialLength, run_trial
from tests.installation import Installation

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),  # after each kill it waits until the platform is ready
    pytest.mark.lifecycle,
    pytest.mark.xdist_group("machine"),
    # Warnings of the client about lost connections, and the sockets that it leaves open.
    pytest.mark.filterwarnings("ignore:Request failed, attempting reconnect"),
    pytest.mark.filterwarnings("ignore:Reconnecting without a Last-Event-ID"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

SEED = "24"
LENGTH = TrialLength(kills=4, runs=50)


def test_no_run_is_lost_and_no_history_broken_while_processes_are_killed(
    killable: Installation, killable_key: str
) -> None:
    result = run_trial(killable, killable_key, SEED, LENGTH)
    gc.collect()  # collect the broken sockets in this test, not in the next one

    print(result)  # noqa: T201  (shows seed and counts with `-s`)
    assert result.violations == [], str(result)
