"""Every writing route is audited, or has a reason not to be."""

from __future__ import annotations

import pytest
from django.urls import get_resolver

from apps.audit.actions import Action
from tests.audit.decisions import AGENTS, ALIKE, ELSEWHERE, REASONS, decisions
from tests.methods import methods_of, views


@pytest.mark.django_db
def test_each_writing_route_has_an_audit_decision():
    routes = {
        (method, route)
        for route, view in views(get_resolver())
        if not route.startswith(AGENTS) and route not in ALIKE
        for method in methods_of(route, view)
    }

    undecided = routes - set(decisions())
    assert not undecided, "\n".join(f"{m} {r} -> ?" for m, r in sorted(undecided))
    removed = set(decisions()) - routes
    assert not removed, "\n".join(f"{m} {r}: there is no such route" for m, r in sorted(removed))


def test_decisions_are_actions_or_reasons():
    known = {f"[{reason}]" for reason in REASONS} | {str(action) for action in Action}

    assert set(decisions().values()) - known == set()


def test_each_action_belongs_to_a_route_or_to_a_known_other_source():
    recorded_actions = {decided for decided in decisions().values() if not decided.startswith("[")}

    assert {str(action) for action in Action} - recorded_actions - ELSEWHERE == set()
