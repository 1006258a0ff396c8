"""The phases of `make test`: each is a pytest of its own, with its own processes."""

from __future__ import annotations

from dataclasses import dataclass

import pytest


@dataclass(frozen=True)
class Phase:
    name: str
    limit_minutes: int
    workers: int
    """Its processes where other phases run beside it."""
    is_parallel: bool = True
    needs_live: bool = False


# Its tests only compute: a third process would take as long to import them as it then saves.
UNIT = Phase("unit", 40, workers=2)
ENGINE = Phase("engine", 35, workers=3)
LIVE = Phase("live", 40, workers=3, needs_live=True)
# Tests that attack one platform or kill its processes, one after the other.
KILLS = Phase("kills", 35, workers=1, is_parallel=False)
SELECTED = Phase("selected", 60, workers=3)
"""All tests of the paths that a caller named, in one phase."""

PHASES = (UNIT, ENGINE, LIVE, KILLS)
"""They run side by side: unit tests need the CPU, those of the others wait part of their time.

The first one of a run collects all tests.
"""

NAME = "SLIPWAY_TEST_PHASE"
"""The environment variable with the phase of a test process."""


def find_phase(item: pytest.Item) -> Phase:
    """Return the one phase that runs this test."""
    groups = {mark.args[0] for mark in item.iter_markers("xdist_group") if mark.args}
    if "machine" in groups:
        return KILLS
    is_browser = item.get_closest_marker("browser") or groups & {"browser", "use-stream"}
    if is_browser or item.get_closest_marker("live"):
        return LIVE
    if item.get_closest_marker("integration") or item.get_closest_marker("lifecycle"):
        return ENGINE
    return UNIT
