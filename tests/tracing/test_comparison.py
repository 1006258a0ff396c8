"""The comparison of two runs: differences of figures and text."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from apps.feedback.models import Feedback, FeedbackConfig
from apps.web_ui.formatting import EMPTY
from apps.web_ui.text_diff import MAX_LINES, compare_texts
from tests.factories.tracing import ingest, read_run, wire_run

pytestmark = pytest.mark.django_db
START = datetime.now(UTC) - timedelta(minutes=5)


def ingest_answer(workspace, *, seconds, tokens, cost, text, scores):
    usage = {"input_tokens": tokens, "output_tokens": 10, "total_cost": cost}
    run = wire_run(
        run_type="llm",
        start=START,
        end_time=(START + timedelta(seconds=seconds)).isoformat(),
        inputs={"messages": [{"role": "user", "content": "Is it raining?"}]},
        outputs={"text": text, "usage_metadata": usage},
    )
    ingest(workspace, run)
    for key, score in scores.items():
        feedback = Feedback(workspace_id=workspace.pk, run_id=run["id"], key=key, score=score)
        feedback.save(force_insert=True)
    return run["id"]


@pytest.fixture
def compared(page, workspace):
    """The response that compares two answers."""
    config = {"type": "continuous", "min": 0, "max": 1, "categories": None}
    FeedbackConfig(
        workspace_id=workspace.pk, key="toxicity", config=config, is_lower_score_better=True
    ).save(force_insert=True)
    first = ingest_answer(
        workspace,
        seconds=2,
        tokens=100,
        cost=0.5,
        text="It is sunny.\nTake a hat.",
        scores={"helpful": 0.5, "toxicity": 0.5, "only a": 1},
    )
    second = ingest_answer(
        workspace,
        seconds=3,
        tokens=75,
        cost=0.25,
        text="It is rainy.\nTake a hat.",
        scores={"helpful": 1, "toxicity": 1},
    )
    project_id = read_run(workspace, first).row.project_id
    path = f"/o/{workspace.pk}/projects/p/{project_id}/compare"
    return page.get(path, {"a": first, "b": second})


def test_comparison_shows_the_differences_of_figures_and_scores(compared):
    figures = {
        figure.name: (
            figure.first,
            figure.second,
            figure.delta.replace("\N{MINUS SIGN}", "-"),
            figure.verdict,
        )
        for figure in compared.context["comparison"].figures
    }

    assert figures == {
        "Latency": ("2.00 s", "3.00 s", "+1.00 s (+50 %)", "worse"),
        "Prompt tokens": ("100", "75", "-25 (-25 %)", "better"),
        "Completion tokens": ("10", "10", "0", ""),
        "Total tokens": ("110", "85", "-25 (-23 %)", "better"),
        "Cost": ("$0.50", "$0.25", "-$0.25 (-50 %)", "better"),
        "helpful": ("0.5", "1", "+0.5 (+100 %)", "better"),
        "toxicity": ("0.5", "1", "+0.5 (+100 %)", "worse"),
        "only a": ("1", EMPTY, "", ""),
    }


def test_comparison_shows_the_text_diff_of_input_and_output(compared):
    payloads = {payload.title: payload.diff for payload in compared.context["comparison"].payloads}
    text = compared.content.decode()

    assert payloads["Input"].is_equal
    assert "No difference in text." in text
    changed = {
        (line.kind, part.text)
        for line in payloads["Output"].lines
        for part in line.parts
        if part.is_changed
    }
    assert changed >= {("removed", "sunny"), ("added", "rainy")}
    assert "<mark>rainy</mark>" in text


def diff_lines(first, second):
    return [
        (line.kind, "".join(part.text for part in line.parts))
        for line in compare_texts(first, second).lines
    ]


def test_unchanged_lines_far_from_a_change_are_counted():
    before = "\n".join(f"line {n}" for n in range(20))

    lines = diff_lines(before, before.replace("line 10", "line ten"))

    assert lines[0] == ("skipped", "7 unchanged lines")
    assert ("removed", "line 10") in lines
    assert ("added", "line ten") in lines
    assert lines[-1] == ("skipped", "6 unchanged lines")


def test_added_and_removed_lines_are_marked():
    assert diff_lines("a\nb", "a\nb\nc") == [("same", "a"), ("same", "b"), ("added", "c")]
    assert diff_lines("a", "") == [("removed", "a")]


def test_texts_of_too_many_lines_are_not_compared():
    assert compare_texts("a\n" * (MAX_LINES + 1), "b").is_too_long
    assert compare_texts("a" * 10_000, "b").is_too_long
    assert compare_texts("same\n" * 5_000, "same\n" * 5_000).is_equal
