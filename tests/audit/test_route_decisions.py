"""Every writing route is audited, or has a reason not to be."""

from __future__ import annotations

import pytest
from django.urls import get_resolver

from apps.audit.actions import Action
from tests.audit.decisions import AGENTS, ELSEWHERE, METHOD_INDEPENDENT, REASONS, load_decisions
from tests.methods import find_change_methods, list_views


@pytest.mark.exhaustive
@pytest.mark.django_db
def test_each_writing_route_has_an_audit_decision():
    routes = {
        (method, route)
        for route, view in list_views(get_resolver())
        if not route.startswith(AGENTS) and route not in METHOD_INDEPENDENT
        for method in find_change_methods(route, view)
    }

    undecided = routes - set(load_decisions())
    assert not undecided, "\n".join(f"{m} {r} -> ?" for m, r in sorted(undecided))
    removed = set(load_decisions()) - routes
    assert not removed, "\n".join(f"{m} {r}: there is no such route" for m, r in sorted(removed))


def test_decisions_are_actions_or_reasons():
    valid_decisions = {f"[{reason}]" for reason in REASONS} | {str(action) for action in Action}

    assert set(load_decisions().values()) - valid_decisions == set()


def test_each_action_belongs_to_a_route_or_to_a_known_other_source():
    recorded_actions = {
        decision for decision in load_decisions().values() if not decision.startswith("[")
    }

    assert {str(action) for action in Action} - recorded_actions - ELSEWHERE == set()
