"""Scores of experiments by example."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest

from apps.feedback.services import example_scores
from apps.feedback.services.example_scores import ScoreChange, ScoreRange
from tests.factories.tracing import read_run, stored_run

A, B = UUID(int=0xA), UUID(int=0xB)
START = datetime(2026, 11, 1, tzinfo=UTC)


@pytest.fixture
def add_run(workspace):
    def add(experiment, example_id, minute=0):
        return stored_run(
            workspace,
            session_name=experiment,
            reference_example_id=str(example_id),
            start=START + timedelta(minutes=minute),
        )

    return add


def project_of(workspace, run_id):
    return read_run(workspace, run_id).row.project_id


def test_scores_of_a_run_and_then_repetitions_are_averaged(create_feedback, workspace, add_run):
    first, second = add_run("one", A), add_run("one", A, 1)
    for value in (0, 1):
        create_feedback(first, "s", score=value)
    create_feedback(second, "s", score=1)
    create_feedback(second, "other", score=0)
    create_feedback(stored_run(workspace, session_name="one"), "s", score=9)
    project_id = project_of(workspace, first)

    averages = example_scores.average_by_example(workspace.pk, [project_id], "s")

    assert averages == {project_id: {A: 0.75}}


def test_scores_of_a_comparison_count_only_for_that_comparison(create_feedback, workspace, add_run):
    run_id, comparison = add_run("one", A), uuid4()
    create_feedback(run_id, "s", score=0)
    create_feedback(run_id, "s", score=1, comparative_experiment_id=str(comparison))
    project_id = project_of(workspace, run_id)

    def read(comparison_id):
        return example_scores.average_by_example(
            workspace.pk, [project_id], "s", comparison_id=comparison_id
        )

    assert read(None) == {project_id: {A: 0}}
    assert read(comparison) == {project_id: {A: 0.5}}
    assert read(uuid4()) == {project_id: {A: 0}}


def test_examples_with_a_higher_or_lower_score_than_the_baseline_are_counted(
    create_feedback, workspace, add_run
):
    base = {example_id: add_run("base", example_id) for example_id in (A, B)}
    other = {example_id: add_run("other", example_id) for example_id in (A, B, UUID(int=0xC))}
    for run_id, value in zip((*base.values(), *other.values()), (1, 0, 0, 1, 1), strict=True):
        create_feedback(run_id, "s", score=value)
    base_id, other_id = project_of(workspace, base[A]), project_of(workspace, other[A])

    changes = example_scores.compare_with_baseline(workspace.pk, base_id, [base_id, other_id])

    assert {change.project_id: change for change in changes} == {
        base_id: ScoreChange(base_id, "s", 2, 0.5, 2, 0, 0),
        other_id: ScoreChange(other_id, "s", 3, 2 / 3, 2, 1, 1),
    }


def test_another_workspace_has_no_scores(create_feedback, workspace, other_workspace, add_run):
    run_id = add_run("one", A)
    create_feedback(run_id, "s", score=1)
    project_id = project_of(workspace, run_id)

    assert example_scores.average_by_example(other_workspace.pk, [project_id], "s") == {}
    assert example_scores.compare_with_baseline(other_workspace.pk, project_id, [project_id]) == []
    ranges = {"s": ScoreRange(0, 1)}
    assert example_scores.count_by_bin(other_workspace.pk, [project_id], ranges) == {}


def test_scores_are_counted_by_part_of_their_range(create_feedback, workspace, add_run):
    runs = [add_run("one", A, minute) for minute in range(4)]
    for run_id, value in zip(runs, (-1, 0, 0.55, 1), strict=True):
        create_feedback(run_id, "s", score=value)
    project_id = project_of(workspace, runs[0])

    counts = example_scores.count_by_bin(workspace.pk, [project_id], {"s": ScoreRange(0, 1)})

    assert counts == {project_id: {"s": [2, 0, 0, 0, 0, 1, 0, 0, 0, 1]}}
