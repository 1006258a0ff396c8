"""Programs that some tests need: without them a developer's run skips the tests, CI fails."""

from __future__ import annotations

import os

import pytest


def skip_without(reason: str | None) -> pytest.MarkDecorator:
    """Return the mark that skips tests for `reason`, which is None where nothing is missing.

    Under `CI=true` it raises `RuntimeError` instead, so that no test is skipped unnoticed.
    """
    if reason is not None:
        _fail_in_ci(reason)
    return pytest.mark.skipif(reason is not None, reason=str(reason))


def skip_now(reason: str) -> None:
    """Skip the current test; under `CI=true` it raises `RuntimeError` instead."""
    _fail_in_ci(reason)
    pytest.skip(reason)


def _fail_in_ci(reason: str) -> None:
    if os.environ.get("CI") == "true":
        raise RuntimeError(f"CI cannot run these tests: {reason}")
