"""Every route that could change something is decided on: audited, or not and why."""

from __future__ import annotations

import pytest
from django.urls import get_resolver

from apps.audit.actions import Action
from tests.audit.decisions import AGENTS, ALIKE, ELSEWHERE, REASONS, decisions
from tests.methods import methods_of, views


@pytest.mark.django_db
def test_each_route_that_changes_something_is_decided_on():
    found = {
        (method, route)
        for route, view in views(get_resolver())
        if not route.startswith(AGENTS) and route not in ALIKE
        for method in methods_of(route, view)
    }

    undecided = found - set(decisions())
    assert not undecided, "\n".join(f"{m} {r} -> ?" for m, r in sorted(undecided))
    gone = set(decisions()) - found
    assert not gone, "\n".join(f"{m} {r}: there is no such route" for m, r in sorted(gone))


def test_decisions_are_actions_or_reasons():
    known = {f"[{reason}]" for reason in REASONS} | {str(action) for action in Action}

    assert set(decisions().values()) - known == set()


def test_each_action_is_what_some_route_does_or_known_to_come_from_elsewhere():
    told = {decided for decided in decisions().values() if not decided.startswith("[")}

    assert {str(action) for action in Action} - told - ELSEWHERE == set()
