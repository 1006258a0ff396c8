"""How many generated inputs a test tries: few in `make test`, the same in each run.

`make fuzz EXAMPLES=100` tries 50 times as many, and others in each run.
"""

from __future__ import annotations

import os
from typing import Any

from hypothesis import HealthCheck, settings

_IN_TESTS = 2
EXAMPLES = int(os.environ.get("EXAMPLES", _IN_TESTS))
"""Requests for each documented route."""


def load_profile() -> None:
    # How long generated inputs take says something of the machine, not of the product.
    settings.register_profile(
        "slipway",
        deadline=None,
        derandomize="EXAMPLES" not in os.environ,
        database=None,
        max_examples=count_examples(50),
        suppress_health_check=[HealthCheck.too_slow],
    )
    settings.load_profile("slipway")


def count_examples(in_tests: int) -> int:
    """Return the number of examples where `make test` tries that many."""
    return max(1, in_tests * EXAMPLES // _IN_TESTS)


def fuzz_settings(in_tests: int, **options: Any) -> settings:
    """Return settings for that number of examples; `make fuzz` multiplies it."""
    return settings(
        max_examples=count_examples(in_tests), suppress_health_check=list(HealthCheck), **options
    )
