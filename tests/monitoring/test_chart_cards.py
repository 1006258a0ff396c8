"""The cards of charts: axes, lines, groups and the previous period."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.utils import timezone

from apps.feedback.models import Feedback
from apps.monitoring.buckets import Stride
from apps.monitoring.chart_cards import ChartCard, build_chart_cards
from apps.monitoring.services.chart_computer import ChartComputer, TimeRange
from tests.factories.monitoring import ChartFactory
from tests.factories.tracing import ingest
from tests.tracing.stats.populations import NOON, build_model_run, build_run, project_id_of

pytestmark = pytest.mark.django_db
HOUR = timedelta(hours=1)


def build_card(workspace, *series: dict[str, Any], **options: Any) -> ChartCard:
    """Build the card of a chart over two hours from noon."""
    compares = options.pop("compares", False)
    all_series = [{"id": str(index), **fields} for index, fields in enumerate(series)]
    chart = ChartFactory(section__workspace=workspace, title="Card", series=all_series, **options)
    time_range = TimeRange(start=NOON, end=NOON + 2 * HOUR, stride=Stride(duration=HOUR))
    computer = ChartComputer(workspace.pk, time_range)
    return build_chart_cards(computer, [chart], compares=compares)[0]


def add_feedback(workspace, run, **fields: Any) -> None:
    Feedback.unscoped.create(
        workspace=workspace,
        project_id=project_id_of(workspace),
        run_id=run["id"],
        trace_id=run["id"],
        is_root=True,
        created_at=NOON,
        start_time=run["start_time"],
        **fields,
    )


def test_each_axis_has_one_unit(workspace):
    ingest(workspace, build_model_run(1))

    card = build_card(
        workspace,
        {"name": "Runs", "metric": "run_count"},
        {"name": "Failed", "metric": "error_rate"},
        {"name": "Median", "metric": "latency_p50"},
        {"name": "Slowest", "metric": "latency_p99"},
    )

    assert [
        (drawing.title, drawing.unit, [line.name for line in drawing.lines])
        for drawing in card.drawings
    ] == [
        ("Card: count", "count", ["Runs"]),
        ("Card: share", "share", ["Failed"]),
        ("Card: duration", "s", ["Median", "Slowest"]),
    ]
    assert len({drawing.id for drawing in card.drawings}) == 3


@pytest.mark.parametrize(
    ("numerator", "denominator", "unit"),
    [
        ({"type": "sum", "field": "total_cost"}, {"type": "count"}, "usd"),
        ({"type": "count"}, {"type": "count"}, "share"),
        (
            {"type": "sum", "field": "total_cost"},
            {"type": "sum", "field": "total_tokens"},
            "usd/tokens",
        ),
    ],
)
def test_a_ratio_has_the_unit_of_its_terms(workspace, numerator, denominator, unit):
    definition = {"type": "ratio", "numerator": numerator, "denominator": denominator}

    card = build_card(workspace, {"name": "Ratio", "metric_definition": definition})

    assert [drawing.unit for drawing in card.drawings] == [unit]


def test_values_of_a_table_have_their_own_units(workspace):
    ingest(workspace, build_run(1))

    card = build_card(
        workspace,
        {"name": "Runs", "metric": "run_count"},
        {"name": "Failed", "metric": "error_rate"},
        chart_type="table",
    )

    assert card.values == [("Runs", "1", ""), ("Failed", "0 %", "")]


def test_all_lines_are_drawn_and_differ(workspace):
    metrics = [{"name": f"line {n}", "metric": "run_count"} for n in range(15)]

    (drawing,) = build_card(workspace, *metrics).drawings

    assert [line.name for line in drawing.lines] == [f"line {n}" for n in range(15)]
    assert len({(line.hue, line.dash) for line in drawing.lines}) == 15


def test_a_limit_of_groups_is_stated(workspace):
    for number in range(7):
        for _ in range(number + 1):
            ingest(workspace, build_run(1, name=f"step {number}"))
    group_by = {"attribute": "name", "max_groups": 5}

    (drawing,) = build_card(
        workspace, {"name": "Runs", "metric": "run_count", "group_by": group_by}
    ).drawings
    (all_groups,) = build_card(
        workspace,
        {"name": "Runs", "metric": "run_count", "group_by": group_by | {"max_groups": 7}},
    ).drawings

    assert [line.name for line in drawing.lines] == [f"step {n}" for n in (6, 5, 4, 3, 2)]
    assert drawing.groups_note == "the 5 largest of 7"
    assert (len(all_groups.lines), all_groups.groups_note) == (7, "")


def test_each_line_of_a_group_has_its_previous_period(workspace):
    for minutes, name in ((-100, "desk"), (-100, "desk"), (5, "desk"), (5, "triage")):
        ingest(workspace, build_run(minutes, name=name))
    ingest(workspace, build_run(-30, name="gone"))
    series = {
        "name": "Runs",
        "metric": "run_count",
        "group_by": {"attribute": "name", "max_groups": 1},
    }

    (drawing,) = build_card(workspace, series, compares=True, chart_type="bar").drawings
    (uncompared,) = build_card(workspace, series, chart_type="bar").drawings

    assert [(line.name, line.values, line.before) for line in drawing.lines] == [
        ("desk", [1, 0], [2, 0])
    ]
    assert (drawing.kind, uncompared.kind) == ("line", "stack")
    assert drawing.columns == ["desk", "desk, previous period"]
    assert uncompared.lines[0].before is None


def test_feedback_has_lines_for_scores_and_for_each_categorical_value(workspace):
    run = build_run(1)
    ingest(workspace, run)
    add_feedback(workspace, run, key="tone", label="polite")
    add_feedback(workspace, run, key="tone", label="rude")
    add_feedback(workspace, run, key="tone", score=0.5)

    both = build_card(workspace, {"name": "Tone", "metric": "feedback", "feedback_key": "tone"})
    values = build_card(
        workspace, {"name": "Tone", "metric": "feedback_values", "feedback_key": "tone"}
    )

    def lines(card):
        return [
            (drawing.unit, line.name, line.values[0])
            for drawing in card.drawings
            for line in drawing.lines
        ]

    counts = [("count", "Tone: polite", 1.0), ("count", "Tone: rude", 1.0)]
    assert lines(both) == [("score", "Tone", 0.5), *counts]
    assert lines(values) == counts


def test_the_note_of_counted_runs_is_in_the_active_zone(workspace, monkeypatch):
    limit = "apps.trace_store.postgres.statistics.run_selection.MAX_COUNTED_RUNS"
    monkeypatch.setattr(limit, 1)
    for minutes in (1, 2, 100):
        ingest(workspace, build_run(minutes, tags=["gold"]))
    group_by = {"attribute": "tag", "max_groups": 5}

    with timezone.override("Asia/Tokyo"):
        (drawing,) = build_card(
            workspace, {"name": "Runs", "metric": "run_count", "group_by": group_by}
        ).drawings

    day = NOON.astimezone(ZoneInfo("Asia/Tokyo"))
    assert drawing.note.startswith(f"since {day:%-d %b %Y} 2")


def test_grouped_ratio_counts_the_groups_of_its_denominator(workspace):
    for _ in range(2):
        ingest(workspace, build_run(1, name="desk"))
    ingest(workspace, build_run(1, name="triage", error="Boom"))
    definition = {
        "type": "ratio",
        "numerator": {"type": "count", "filter": 'eq(status, "success")'},
        "denominator": {"type": "count"},
    }
    group_by = {"attribute": "name", "max_groups": 1}

    (drawing,) = build_card(
        workspace, {"name": "Good", "metric_definition": definition, "group_by": group_by}
    ).drawings

    assert [(line.name, line.values[0]) for line in drawing.lines] == [("desk", 1.0)]
