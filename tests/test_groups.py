"""Tests that must not run in parallel share a group of pytest-xdist."""

import os

import pytest


@pytest.mark.skipif(
    "PYTEST_XDIST_WORKER" not in os.environ, reason="the tests do not run in parallel"
)
@pytest.mark.xdist_group("groups")
def test_a_group_is_honoured(request):
    # xdist sends a group to one worker by this suffix; pytest 9.2 dropped it silently.
    assert request.node.nodeid.endswith("@groups")
