"""The three views of a thread: transcript, turns and details."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from apps.feedback.models import Feedback
from apps.trace_store.postgres.postprocess import processor
from apps.tracing.pages.transcripts import loading
from tests.console.conftest import create_workspace_user, signed_in
from tests.factories.organizations import WorkspaceFactory
from tests.factories.tracing import ingest, read_run, wire_run

pytestmark = pytest.mark.django_db
START = datetime.now(UTC) - timedelta(hours=2)
THREAD_FIELDS = {"extra": {"metadata": {"thread_id": "t/1", "tier": "gold"}}}


def build_step(parent, start_seconds: float, end_seconds: float, **fields):
    """Build a run that starts and ends that many seconds after START."""
    start = START + timedelta(seconds=start_seconds)
    end_time = (START + timedelta(seconds=end_seconds)).isoformat()
    return wire_run(parent, start=start, end_time=end_time, **fields)


@pytest.fixture
def turn(workspace):
    """A turn: a model run, two parallel tool runs, a model run."""
    root = build_step(None, 0, 10, name="answer", **THREAD_FIELDS)
    usage = {"usage_metadata": {"input_tokens": 10, "output_tokens": 5, "total_cost": 0.25}}
    ingest(
        workspace,
        root,
        build_step(root, 1, 2, name="plan", run_type="llm", outputs=usage),
        build_step(root, 3, 6, name="search", run_type="tool"),
        build_step(root, 4, 5, name="weather", run_type="tool", error="Boom"),
        build_step(root, 7, 9, name="write", run_type="llm"),
        build_step(root, 7, 8, name="inner", run_type="chain"),
    )
    return root


def thread_url(workspace, run):
    project_id = read_run(workspace, run["id"]).row.project_id
    return f"/o/{workspace.pk}/projects/p/{project_id}/thread"


def test_the_transcript_shows_the_calls_of_each_turn(page, workspace, turn):
    later = build_step(None, 60, 61, name="again", **THREAD_FIELDS)
    ingest(workspace, later)

    response = page.get(thread_url(workspace, turn), {"thread": "t/1"})

    first, second = response.context["turns"]
    assert [(block.kind, block.row.name) for block in first.transcript.blocks] == [
        ("input", "answer"),
        ("turn", "plan"),
        ("tool", "search"),
        ("tool", "weather"),
        ("turn", "write"),
        ("output", "answer"),
    ]
    assert [block.kind for block in second.transcript.blocks] == ["input", "output"]
    assert "Boom" in response.text


def test_the_transcript_of_a_thread_shows_each_message_once(page, workspace):
    history = [{"role": "user", "content": "one"}, {"role": "assistant", "content": "first"}]
    new = [{"role": "user", "content": "two"}, {"role": "assistant", "content": "second"}]
    turns = [
        build_step(
            None,
            60 * number,
            60 * number + 9,
            inputs={"messages": messages[:-1]},
            outputs={"messages": messages},
            **THREAD_FIELDS,
        )
        for number, messages in enumerate((history, [*history, *new]))
    ]
    ingest(workspace, *turns)

    response = page.get(thread_url(workspace, turns[0]), {"thread": "t/1"})

    shown = [
        [message.text for block in turn.transcript.blocks for message in block.messages]
        for turn in response.context["turns"]
    ]
    assert shown == [["one", "first"], ["two", "second"]]


def test_the_transcript_states_that_a_turn_has_more_runs(page, workspace, turn, monkeypatch):
    monkeypatch.setattr(loading, "RUNS_PER_PAGE", 2)

    response = page.get(thread_url(workspace, turn), {"thread": "t/1"})

    [only] = response.context["turns"]
    assert only.is_cut
    assert "This turn has more runs." in response.text


def test_link_to_the_former_view_opens_the_transcript(page, workspace, turn):
    response = page.get(thread_url(workspace, turn), {"thread": "t/1", "view": "trajectory"})

    assert response.context["view"] == ""
    assert len(response.context["turns"]) == 1


def test_details_have_the_statistics_of_all_turns(page, workspace, turn):
    ingest(workspace, build_step(None, 60, 64, name="again", error="Boom", **THREAD_FIELDS))
    processor.process_all()
    root = read_run(workspace, turn["id"]).row
    Feedback.unscoped.create(
        workspace=workspace, project_id=root.project_id, run_id=root.id, trace_id=root.id,
        thread_key="t/1", key="helpful", score=1, is_root=True,
    )  # fmt: skip

    response = page.get(thread_url(workspace, turn), {"thread": "t/1", "view": "details"})

    details = response.context["details"]
    assert (details.row.metrics.runs, details.row.metrics.errors) == (2, 1)
    assert details.duration == timedelta(seconds=64)
    assert details.tokens == (10, 5, 15)
    assert details.costs[2] == pytest.approx(0.25)
    assert [run.name for run in details.turns] == ["answer", "again"]
    assert [(key, stats["n"]) for key, stats in details.feedback] == [("helpful", 1)]
    assert details.metadata == [("thread_id", "t/1"), ("tier", "gold")]


@pytest.mark.parametrize("view", ["", "turns", "details"])
def test_each_view_links_to_the_others_and_is_hidden_from_outsiders(page, workspace, turn, view):
    base = thread_url(workspace, turn)
    outsider = signed_in(create_workspace_user(WorkspaceFactory(), "admin"))
    params = {"thread": "t/1"} | ({"view": view} if view else {})

    response = page.get(base, params)

    assert [title for _, title in response.context["views"]] == ["Transcript", "Turns", "Details"]
    assert response.text.count('aria-current="page">') >= 1
    assert outsider.get(base, params).status_code == 404
    assert page.get(base, params | {"thread": "none"}).status_code == 404
    assert page.get(base, params | {"view": "other"}).status_code == 404


@pytest.mark.parametrize("view", ["", "turns", "details"])
def test_the_number_of_queries_does_not_grow_with_the_turns(page, workspace, turn, view):
    base, params = thread_url(workspace, turn), {"thread": "t/1", "view": view}

    def count_queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            assert page.get(base, params).status_code == 200
        return len(captured)

    count_queries()
    before = count_queries()
    for number in range(1, 8):
        root = build_step(None, 60 * number, 60 * number + 9, name="answer", **THREAD_FIELDS)
        ingest(workspace, root, build_step(root, 60 * number, 60 * number + 3, run_type="tool"))

    assert count_queries() == before


def test_question_that_is_asked_twice_is_shown_twice(page, workspace):
    question = {"messages": [{"role": "user", "content": "Again?"}]}
    answer = {"messages": [{"role": "assistant", "content": "Yes."}]}
    turns = [
        build_step(None, 60 * n, 60 * n + 9, inputs=question, outputs=answer, **THREAD_FIELDS)
        for n in range(2)
    ]
    ingest(workspace, *turns)

    response = page.get(thread_url(workspace, turns[0]), {"thread": "t/1"})

    shown = [
        [message.text for block in turn.transcript.blocks for message in block.messages]
        for turn in response.context["turns"]
    ]
    assert shown == [["Again?", "Yes."]] * 2
