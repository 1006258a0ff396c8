"""The three ways to read a thread: its turns, what was called in them, and its figures."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from apps.feedback.models import Feedback
from apps.trace_store.postgres.postprocess import processor
from apps.tracing.pages import trajectories
from tests.console.conftest import person, signed_in
from tests.factories.organizations import WorkspaceFactory
from tests.factories.tracing import ingest, read, wire_run

pytestmark = pytest.mark.django_db
START = datetime.now(UTC) - timedelta(hours=2)
OF_THREAD = {"extra": {"metadata": {"thread_id": "t/1", "tier": "gold"}}}


@pytest.fixture
def workspace():
    return WorkspaceFactory(name="Desk", organization__name="Northwind")


@pytest.fixture
def page(workspace):
    return signed_in(person(workspace, "editor"))


def step(parent, begin: float, end: float, **fields):
    """A step of that many seconds after the start of all."""
    start = START + timedelta(seconds=begin)
    until = (START + timedelta(seconds=end)).isoformat()
    return wire_run(parent, start=start, end_time=until, **fields)


@pytest.fixture
def turn(workspace):
    """A turn: a model, two tools at once, a model again."""
    root = step(None, 0, 10, name="answer", **OF_THREAD)
    usage = {"usage_metadata": {"input_tokens": 10, "output_tokens": 5, "total_cost": 0.25}}
    ingest(
        workspace,
        root,
        step(root, 1, 2, name="plan", run_type="llm", outputs=usage),
        step(root, 3, 6, name="search", run_type="tool"),
        step(root, 4, 5, name="weather", run_type="tool", error="Boom"),
        step(root, 7, 9, name="write", run_type="llm"),
        step(root, 7, 8, name="inner", run_type="chain"),
    )
    return root


def address(workspace, run):
    project_id = read(workspace, run["id"]).row.project_id
    return f"/o/{workspace.pk}/projects/p/{project_id}/thread"


def test_the_trajectory_groups_what_was_called_at_once(page, workspace, turn):
    later = step(None, 60, 61, name="again", **OF_THREAD)
    ingest(workspace, later)
    asked = {"thread": "t/1", "view": "trajectory"}

    response = page.get(address(workspace, turn), asked)

    first, second = response.context["trajectory"].turns
    assert [[one.name for one in group.steps] for group in first.steps] == [
        ["plan"],
        ["search", "weather"],
        ["write"],
    ]
    assert [group.is_parallel for group in first.steps] == [False, True, False]
    assert (second.turn.name, list(second.steps)) == ("again", [])
    assert "2 in parallel" in response.text
    assert "Boom" in response.text


def test_more_steps_than_are_shown_are_said(page, workspace, turn, monkeypatch):
    monkeypatch.setattr(trajectories, "MAX_STEPS", 2)

    response = page.get(address(workspace, turn), {"thread": "t/1", "view": "trajectory"})

    (turn_steps,) = response.context["trajectory"].turns
    assert sum(len(group.steps) for group in turn_steps.steps) == 2
    assert "more steps than this page shows" in response.text


def test_details_are_the_figures_of_all_turns(page, workspace, turn):
    ingest(workspace, step(None, 60, 64, name="again", error="Boom", **OF_THREAD))
    processor.process_all()
    root = read(workspace, turn["id"]).row
    Feedback.unscoped.create(
        workspace=workspace, project_id=root.project_id, run_id=root.id, trace_id=root.id,
        thread_key="t/1", key="helpful", score=1, is_root=True,
    )  # fmt: skip

    response = page.get(address(workspace, turn), {"thread": "t/1", "view": "details"})

    details = response.context["details"]
    assert (details.row.figures.runs, details.row.figures.errors) == (2, 1)
    assert details.lasted == timedelta(seconds=64)
    assert details.tokens == (10, 5, 15)
    assert details.costs[2] == pytest.approx(0.25)
    assert [run.name for run in details.turns] == ["answer", "again"]
    assert [(key, said["n"]) for key, said in details.feedback] == [("helpful", 1)]
    assert details.metadata == [("thread_id", "t/1"), ("tier", "gold")]


@pytest.mark.parametrize("view", ["", "trajectory", "details"])
def test_each_way_leads_to_the_others_and_to_nothing_of_strangers(page, workspace, turn, view):
    base = address(workspace, turn)
    stranger = signed_in(person(WorkspaceFactory(), "admin"))
    asked = {"thread": "t/1"} | ({"view": view} if view else {})

    response = page.get(base, asked)

    assert [title for _, title in response.context["views"]] == ["Trajectory", "Turns", "Details"]
    assert response.text.count('aria-current="page">') >= 1
    assert stranger.get(base, asked).status_code == 404
    assert page.get(base, asked | {"thread": "none"}).status_code == 404
    assert page.get(base, asked | {"view": "other"}).status_code == 404


@pytest.mark.parametrize("view", ["trajectory", "details"])
def test_the_number_of_queries_does_not_grow_with_the_turns(page, workspace, turn, view):
    base, asked = address(workspace, turn), {"thread": "t/1", "view": view}

    def queries() -> int:
        with CaptureQueriesContext(connection) as counted:
            assert page.get(base, asked).status_code == 200
        return len(counted)

    queries()
    before = queries()
    for number in range(1, 8):
        root = step(None, 60 * number, 60 * number + 9, name="answer", **OF_THREAD)
        ingest(workspace, root, step(root, 60 * number, 60 * number + 3, run_type="tool"))

    assert queries() == before
