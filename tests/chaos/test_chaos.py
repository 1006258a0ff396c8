"""A short chaos trial: runs of all kinds while random processes are killed one at a time."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.trial import TrialLength, run_trial
from tests.crash import recorder
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


@pytest.fixture
def installation(tmp_path: Path) -> Iterator[Installation]:
    """An installation with the usual limits: the load of a trial exceeds those of `killable`."""
    installation = Installation(tmp_path / "data", EGRESS_NETWORKS=recorder.NETWORK)
    installation.start()
    installation.wait_until_ready()
    yield installation
    assert installation.stop() == 0


def test_no_run_is_lost_and_no_history_broken_while_processes_are_killed(
    installation: Installation,
) -> None:
    result = run_trial(installation, installation.bootstrap()["api_key"], SEED, LENGTH)
    gc.collect()  # collect the broken sockets in this test, not in the next one

    print(result)  # noqa: T201  (shows seed and counts with `-s`)
    assert result.violations == [], str(result)
