"""The Monitoring page of a project, and its copy to a dashboard."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from apps.feedback.models import Feedback
from apps.monitoring.models import Section
from apps.monitoring.prebuilt import MAX_FEEDBACK_KEYS
from tests.console.conftest import create_workspace_user, signed_in
from tests.factories.organizations import WorkspaceFactory
from tests.factories.tracing import ingest, read_run, stored_run
from tests.tracing.stats.populations import NOON, build_model_run, build_run, project_id_of

pytestmark = pytest.mark.django_db
FRAGMENT = {"HX-Request": "true"}
WEEK_IN_MINUTES = 7 * 24 * 60


def project_url(workspace, run_id):
    project_id = read_run(workspace, run_id).row.project_id
    return f"/o/{workspace.pk}/projects/p/{project_id}"


def load_dashboard(page, base, **params):
    response = page.get(f"{base}/monitoring", params, headers=FRAGMENT)
    assert response.status_code == 200
    return response.context["dashboard"]


def load_cards(page, base, **params):
    return [
        card for section in load_dashboard(page, base, **params).sections for card in section.cards
    ]


def copy_dashboard(page, workspace, base, **params):
    project_id = base.rpartition("/")[2]
    response = page.post(f"/o/{workspace.pk}/dashboards/for-project/{project_id}", params)
    return response["Location"]


def describe(card):
    """Return what a reader sees of the card."""
    return (
        card.chart.title,
        [
            (
                drawing.title,
                drawing.unit,
                drawing.kind,
                drawing.groups_note,
                [
                    (line.name, line.hue, line.href, list(line.values), line.before)
                    for line in drawing.lines
                ],
            )
            for drawing in card.drawings
        ],
    )


def add_feedback(workspace, run, *keys):
    for key in keys:
        Feedback.unscoped.create(
            workspace=workspace,
            project_id=project_id_of(workspace),
            run_id=run["id"],
            trace_id=run["id"],
            is_root=True,
            created_at=NOON,
            start_time=run["start_time"],
            key=key,
            score=1,
        )


def ingest_traces(workspace):
    """Ingest traces of two periods with model calls, tools and feedback; return a root."""
    root = build_run(1, name="desk", extra={"metadata": {"tier": "gold"}})
    tool = build_run(2, parent=root, run_type="tool", name="search")
    failed = build_run(3, name="triage", error="Boom")
    earlier = build_run(1 - WEEK_IN_MINUTES, name="desk")
    ingest(workspace, root, tool, build_model_run(3, parent=root), failed, earlier)
    add_feedback(workspace, root, "helpful")
    return root


def test_the_dashboard_counts_and_groups(page, workspace):
    base = project_url(workspace, stored_run(workspace, name="desk"))
    stored_run(workspace, name="triage", error="Boom")

    params = {"group": "name", "compare": "1"}
    plain = page.get(f"{base}/monitoring?whole=1").context["dashboard"]
    grouped = load_dashboard(page, base, **params)
    shell = page.get(f"{base}/monitoring", params)

    assert [(tile.name, tile.value) for tile in plain.tiles[:2]] == [
        ("Traces", "2"),
        ("Error rate", "50 %"),
    ]
    [drawing] = grouped.sections[0].cards[0].drawings
    assert {line.name: sum(value or 0 for value in line.values) for line in drawing.lines} == {
        "desk": 1,
        "triage": 1,
    }
    assert "eq%28name%2C+%22desk%22%29" in drawing.lines[0].href
    assert "dashboard" not in shell.context


def test_tiles_of_a_grouped_dashboard_count_all_traces(page, workspace):
    base = project_url(workspace, stored_run(workspace, name="desk"))
    stored_run(workspace, extra={"metadata": {"tier": "gold"}})

    params = {"group": "metadata", "path": "tier"}
    dashboard = load_dashboard(page, base, **params)
    content = page.get(f"{base}/monitoring", params, headers=FRAGMENT).content.decode()

    [drawing] = dashboard.sections[0].cards[0].drawings
    assert [line.name for line in drawing.lines] == ["gold"]
    assert dashboard.tiles[0].value == "2"
    assert "only runs with the metadata key tier" in content


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"compare": "1"},
        {"group": "name"},
        {"group": "name", "compare": "1"},
        {"group": "metadata", "path": "tier"},
    ],
)
def test_the_copy_has_the_charts_of_monitoring(page, workspace, params, stopped_clock):
    base = project_url(workspace, ingest_traces(workspace)["id"])

    cards = load_cards(page, base, **params)
    copy = copy_dashboard(page, workspace, base, **params)
    compare = {"compare": "1"} if "compare" in params else {}
    copied = page.get(copy, {"whole": "1", **compare}).context["cards"]

    assert [describe(card) for card in copied] == [describe(card) for card in cards]
    assert any(card.drawings[0].lines for card in cards)


def test_every_line_of_a_grouped_dashboard_is_compared(page, workspace):
    base = project_url(workspace, ingest_traces(workspace)["id"])

    cards = load_cards(page, base, group="name", compare="1")

    lines = [line for card in cards for drawing in card.drawings for line in drawing.lines]
    assert all(line.before is not None for line in lines)
    [count] = [card for card in cards if card.chart.title == "Trace count"]
    [drawing] = count.drawings
    totals = {line.name: (sum(line.values), sum(line.before)) for line in drawing.lines}
    assert totals == {"desk": (1, 1), "triage": (1, 0)}


def test_grouping_keeps_every_percentile(page, workspace):
    base = project_url(workspace, ingest_traces(workspace)["id"])

    titles = [card.chart.title for card in load_cards(page, base, group="name")]

    assert titles[:5] == [
        "Trace count",
        "Trace latency, p50",
        "Trace latency, p95",
        "Trace latency, p99",
        "Trace error rate",
    ]


def test_no_axis_of_monitoring_has_two_units(page, workspace):
    base = project_url(workspace, ingest_traces(workspace)["id"])

    for card in load_cards(page, base):
        assert len(card.drawings) == len({drawing.unit for drawing in card.drawings}) == 1


def test_feedback_keys_beyond_the_limit_are_stated(page, workspace):
    root = build_run(1)
    ingest(workspace, root)
    add_feedback(workspace, root, *(f"key {n:02}" for n in range(MAX_FEEDBACK_KEYS + 1)))
    base = project_url(workspace, root["id"])

    section = load_dashboard(page, base, group="name").sections[-1]

    assert (section.title, len(section.cards)) == ("Feedback scores", MAX_FEEDBACK_KEYS)
    assert section.note == "The 20 most frequent of 21 keys. Feedback is not grouped."


def test_an_empty_project_has_charts_without_data(page, workspace):
    base = project_url(workspace, stored_run(workspace))

    content = page.get(
        f"{base}/monitoring?from=2020-01-01T00:00:00Z&to=2020-01-02T00:00:00Z&compare=1&group=tag",
        headers=FRAGMENT,
    ).content.decode()

    assert "No data in this time range" in content


def test_the_number_of_queries_does_not_grow_with_the_groups(page, workspace):
    base = project_url(workspace, stored_run(workspace, name="first"))

    def count_queries():
        with CaptureQueriesContext(connection) as captured:
            load_dashboard(page, base, group="name", compare="1")
        return len(captured)

    with_one = count_queries()
    for number in range(6):
        stored_run(workspace, name=f"step {number}")

    assert count_queries() == with_one


def test_copy_opens_with_the_time_range_and_the_comparison_of_the_page(page, workspace):
    base = project_url(workspace, stored_run(workspace))

    address = copy_dashboard(page, workspace, base, range="30d", compare="1")

    assert address.endswith("?range=30d&compare=1")


def test_viewers_read_the_charts_and_cannot_copy_them(page, workspace):
    base = project_url(workspace, stored_run(workspace))
    project_id = base.rpartition("/")[2]
    copy = f"/o/{workspace.pk}/dashboards/for-project/{project_id}"
    viewer = signed_in(create_workspace_user(workspace, "viewer"))
    outsider = signed_in(create_workspace_user(WorkspaceFactory(), "admin"))

    assert viewer.get(f"{base}/monitoring?whole=1").status_code == 200
    assert viewer.post(copy).status_code == 403
    assert outsider.get(f"{base}/monitoring").status_code == 404
    assert outsider.post(copy).status_code == 404
    assert not Section.unscoped.exists()


def test_values_of_the_whole_period_are_compared(page, workspace):
    base = project_url(workspace, ingest_traces(workspace)["id"])
    address = copy_dashboard(page, workspace, base)
    fields = {
        "title": "All",
        "chart_type": "kpi",
        "metrics": ["run_count"],
        "filter": "eq(is_root, true)",
        "action": "save",
    }
    page.post(f"{address}/charts/new", fields)

    content = page.get(address, {"whole": "1", "compare": "1"}).content.decode()

    assert "1 in the previous period" in content
