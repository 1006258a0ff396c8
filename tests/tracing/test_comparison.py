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
        "Input tokens": ("100", "75", "-25 (-25 %)", "better"),
        "Output tokens": ("10", "10", "0", ""),
        "Tokens": ("110", "85", "-25 (-23 %)", "better"),
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


def run_times(begin, end):
    return {
        "start": START + timedelta(seconds=begin),
        "end_time": (START + timedelta(seconds=end)).isoformat(),
    }


def ingest_trace(workspace, *, order="7", result="shipped", is_checked=True, project="desk"):
    """Store an agent's trace: a model call, a tool call, an optional check, a model call."""
    session = {"session_name": project}
    root = wire_run(
        name="desk",
        inputs={"messages": [{"role": "user", "content": "Where is it?"}]},
        outputs={"answer": result},
        **run_times(0, 10),
        **session,
    )
    ask = {"role": "assistant", "content": "I look.", "id": f"msg-{root['id']}"}
    runs = [
        root,
        wire_run(
            root,
            name="chat",
            run_type="llm",
            inputs={"messages": [{"role": "user", "content": "Where is it?"}]},
            outputs={"messages": [ask]},
            **run_times(1, 2),
        ),
        wire_run(
            root,
            name="find_order",
            run_type="tool",
            inputs={"order": order},
            outputs={"output": result, "tool_call_id": root["id"]},
            **run_times(2, 4),
        ),
    ]
    if is_checked:
        runs.append(
            wire_run(root, name="check", inputs={}, outputs={"ok": True}, **run_times(4, 5))
        )
    runs.append(
        wire_run(
            root,
            name="chat",
            run_type="llm",
            inputs={"messages": [{"role": "user", "content": f"It is {result}"}]},
            outputs={"messages": [{"role": "assistant", "content": result}]},
            **run_times(5, 6),
        )
    )
    ingest(workspace, *runs)
    return root["id"]


def compare(page, workspace, first, second, **params):
    project_id = read_run(workspace, first).row.project_id
    path = f"/o/{workspace.pk}/projects/p/{project_id}/compare"
    return page.get(path, {"a": first, "b": second} | params)


def step_rows(response):
    return [
        (step.depth, step.row.name, step.difference) for step in response.context["alignment"].steps
    ]


def test_steps_of_two_traces_are_aligned_and_the_first_difference_is_named(page, workspace):
    first = ingest_trace(workspace)
    second = ingest_trace(workspace, order="8", result="lost", is_checked=False)

    response = compare(page, workspace, first, second)

    assert step_rows(response) == [
        (0, "desk", ""),
        (1, "chat", ""),
        (1, "find_order", "arguments"),
        (1, "check", "only in A"),
        (1, "chat", "input"),
    ]
    assert "step 3, find_order: arguments" in response.text
    assert response.context["step"].number == 3
    changed = [payload.title for payload in response.context["step_payloads"]]
    assert changed == ["Input", "Output"]
    assert "<mark>8</mark>" in response.text
    figures = {
        figure.name: (figure.first, figure.second)
        for figure in response.context["comparison"].figures
    }
    assert figures["LLM calls"] == ("2", "2")
    assert "Errors" not in figures


def test_equal_traces_have_no_difference_whatever_their_ids(page, workspace):
    first, second = ingest_trace(workspace), ingest_trace(workspace)

    response = compare(page, workspace, first, second)

    assert {difference for _, _, difference in step_rows(response)} == {""}
    assert response.context["alignment"].first_difference is None
    assert "No difference in 5 steps" in response.text
    assert "data-only" not in response.text


def test_equal_steps_are_hidden_and_counted(page, workspace):
    first, second = ingest_trace(workspace), ingest_trace(workspace, is_checked=False)

    response = compare(page, workspace, first, second, only="1")

    rows = response.context["alignment"].only_differences()
    assert [row if isinstance(row, int) else row.row.name for row in rows] == [
        "desk",
        2,
        "check",
        1,
    ]
    assert "2 equal steps hidden" in response.text
    assert "data-only" in response.text


def test_selected_step_is_loaded_alone(page, workspace):
    first, second = ingest_trace(workspace), ingest_trace(workspace, is_checked=False)
    project_id = read_run(workspace, first).row.project_id

    response = page.get(
        f"/o/{workspace.pk}/projects/p/{project_id}/compare",
        {"a": first, "b": second, "step": "4"},
        headers={"HX-Request": "true", "HX-Target": "step"},
    )

    assert "Step 4: check" in response.text
    assert "only in A" in response.text
    assert "<html" not in response.text
    assert "compare-steps" not in response.text


def test_an_output_differs_only_at_the_step_that_made_it(page, workspace):
    first, second = ingest_trace(workspace), ingest_trace(workspace, result="lost")

    response = compare(page, workspace, first, second)

    # The root's output differs because that of the tool does.
    assert step_rows(response)[:3] == [
        (0, "desk", ""), (1, "chat", ""), (1, "find_order", "output"),
    ]  # fmt: skip


def test_traces_of_two_projects_are_compared(page, workspace, other_workspace):
    first = ingest_trace(workspace)
    second = ingest_trace(workspace, project="canary")
    foreign = ingest_trace(other_workspace)

    response = compare(page, workspace, first, second, mode="metadata")
    other_project = read_run(workspace, second).row.project_id

    assert response.status_code == 200
    assert f"/p/{other_project}/r/{second}" in response.text
    assert compare(page, workspace, first, foreign).status_code == 404
    assert compare(page, workspace, first, "x").status_code == 404


def test_siblings_of_one_name_are_paired_by_their_arguments(page, workspace):
    def trace(*orders):
        root = wire_run(name="desk", inputs={}, **run_times(0, 9))
        calls = [
            wire_run(
                root,
                name="find_order",
                run_type="tool",
                inputs={"order": order},
                **run_times(number + 1, number + 2),
            )
            for number, order in enumerate(orders)
        ]
        ingest(workspace, root, *calls)
        return root["id"]

    response = compare(page, workspace, trace("a", "b", "c"), trace("b", "c"))

    assert step_rows(response)[1:] == [
        (1, "find_order", "only in A"), (1, "find_order", ""), (1, "find_order", ""),
    ]  # fmt: skip


def test_candidates_with_the_same_input_come_first(page, workspace):
    first = ingest_trace(workspace)
    run = wire_run(name="desk", inputs={"other": 1}, session_name="desk", start=START)
    ingest(workspace, run)
    same = ingest_trace(workspace)
    project_id = read_run(workspace, first).row.project_id

    response = page.get(f"/o/{workspace.pk}/projects/p/{project_id}/compare", {"a": first})

    assert [str(row.id) for row in response.context["candidates"]] == [same, run["id"]]
