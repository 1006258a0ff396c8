"""The phases of `make test`: each is a pytest of its own, with its own processes."""

from __future__ import annotations

from dataclasses import dataclass

import pytest


@dataclass(frozen=True)
class Phase:
    name: str
    limit_minutes: int
    is_parallel: bool = True
    needs_live: bool = False


UNIT = Phase("unit", 25)
ENGINE = Phase("engine", 20)
# With the browser, whose tests alone leave a core idle.
LIVE = Phase("live", 30, needs_live=True)
# Tests that kill processes of a platform or exhaust the machine: nothing runs beside them.
SERIAL = Phase("serial", 20, is_parallel=False)
SELECTED = Phase("selected", 60)
"""All tests of the paths that a caller named, in one phase."""

PHASES = (UNIT, ENGINE, LIVE, SERIAL)


def find_phase(item: pytest.Item) -> Phase:
    """Return the one phase that runs this test."""
    groups = {mark.args[0] for mark in item.iter_markers("xdist_group") if mark.args}
    if "machine" in groups:
        return SERIAL
    is_browser = item.get_closest_marker("browser") or groups & {"browser", "use-stream"}
    if is_browser or item.get_closest_marker("live"):
        return LIVE
    if item.get_closest_marker("integration") or item.get_closest_marker("lifecycle"):
        return ENGINE
    return UNIT
