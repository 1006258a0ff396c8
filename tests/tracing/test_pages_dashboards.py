"""Custom dashboards: creating, changing, copying, deleting, and the required permissions."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from apps.monitoring.models import Chart, Section
from tests.console.conftest import create_workspace_user, signed_in
from tests.factories.organizations import WorkspaceFactory
from tests.factories.tracing import read_run, stored_run

pytestmark = pytest.mark.django_db
CHART_FIELDS = {"title": "Failed", "chart_type": "line", "metrics": ["run_count", "error_rate"]}


def create_dashboard(page, workspace):
    response = page.post(f"/o/{workspace.pk}/dashboards", {"title": "Desk"})
    return response["Location"]


def test_a_chart_is_previewed_saved_changed_and_deleted(page, workspace):
    stored_run(workspace, error="Boom")
    address = create_dashboard(page, workspace)

    preview = page.post(f"{address}/charts/new", CHART_FIELDS | {"action": "preview"})
    assert not Chart.unscoped.exists()
    page.post(f"{address}/charts/new", CHART_FIELDS | {"action": "save"})
    chart = Chart.unscoped.get()
    cards = page.get(f"{address}?whole=1").context["cards"]
    page.post(f"{address}/charts/{chart.pk}", CHART_FIELDS | {"title": "All", "action": "save"})
    chart.refresh_from_db()

    drawings = preview.context["preview"].drawings
    assert [(drawing.title, drawing.unit) for drawing in drawings] == [
        ("Failed: count", "count"),
        ("Failed: share", "share"),
    ]
    lines = [line for drawing in drawings for line in drawing.lines]
    assert [(line.name, sum(value or 0 for value in line.values)) for line in lines] == [
        ("run count", 1),
        ("error rate", 1),
    ]
    assert [card.chart.pk for card in cards] == [chart.pk]
    assert chart.title == "All"
    page.post(f"{address}/charts/{chart.pk}", {"action": "delete"})
    assert not Chart.unscoped.exists()


def test_an_invalid_chart_filter_is_reported_at_its_field(page, workspace):
    address = create_dashboard(page, workspace)

    response = page.post(
        f"{address}/charts/new", CHART_FIELDS | {"filter": "eq(nme, 1)", "action": "save"}
    )

    assert response.status_code == 422
    assert "nme" in response.context["form"].errors["filter"][0]
    assert not Chart.unscoped.exists()


def test_the_dashboard_of_a_project_is_copied_and_the_copy_cloned(page, workspace):
    project_id = read_run(workspace, stored_run(workspace)).row.project_id

    copied = page.post(f"/o/{workspace.pk}/dashboards/for-project/{project_id}")["Location"]
    clone = page.post(f"{copied}/change", {"action": "clone"})["Location"]

    counts = [len(page.get(f"{url}?whole=1").context["cards"]) for url in (copied, clone)]
    assert counts[0] == counts[1] > 5
    page.post(f"{clone}/change", {"action": "delete"})
    assert [str(section.pk) for section in Section.unscoped.all()] == [copied.rpartition("/")[2]]


def test_saving_the_form_keeps_the_series_of_a_chart(page, workspace):
    project_id = read_run(workspace, stored_run(workspace)).row.project_id
    copied = page.post(f"/o/{workspace.pk}/dashboards/for-project/{project_id}")["Location"]
    chart = Chart.unscoped.get(title="Trace latency")

    fields = {"title": "How long", "chart_type": "bar", "project": str(project_id)}
    page.post(f"{copied}/charts/{chart.pk}", fields | {"action": "save"})
    changed = Chart.unscoped.get(pk=chart.pk)

    assert (changed.title, changed.chart_type) == ("How long", "bar")
    assert [series["name"] for series in changed.series] == ["p50", "p95", "p99"]
    assert [series["metric_definition"] for series in changed.series] == [
        series["metric_definition"] for series in chart.series
    ]


def test_charts_of_one_project_link_to_its_runs(page, workspace):
    project_id = read_run(workspace, stored_run(workspace)).row.project_id
    copied = page.post(f"/o/{workspace.pk}/dashboards/for-project/{project_id}")["Location"]

    cards = page.get(f"{copied}?whole=1").context["cards"]

    [[count]] = [card.drawings for card in cards if card.chart.title == "Trace count"]
    runs_url = f"/o/{workspace.pk}/projects/p/{project_id}?show=all"
    assert count.href == runs_url
    assert count.lines[0].href.startswith(f"{runs_url}&filter=and%28eq%28is_root")


def test_viewers_and_outsiders_change_no_dashboard(page, workspace):
    address = create_dashboard(page, workspace)
    viewer = signed_in(create_workspace_user(workspace, "viewer"))
    outsider = signed_in(create_workspace_user(WorkspaceFactory(), "admin"))

    assert viewer.get(address).status_code == 200
    assert viewer.post(f"{address}/change", {"action": "delete"}).status_code == 403
    assert viewer.post(f"{address}/charts/new", CHART_FIELDS).status_code == 403
    assert outsider.get(address).status_code == 404
    assert outsider.post(f"{address}/change", {"action": "delete"}).status_code == 404
    assert Section.unscoped.count() == 1


def test_the_number_of_queries_of_a_dashboard_does_not_grow_with_its_charts(page, workspace):
    project_id = read_run(workspace, stored_run(workspace)).row.project_id
    copied = page.post(f"/o/{workspace.pk}/dashboards/for-project/{project_id}")["Location"]
    empty = create_dashboard(page, workspace)

    assert count_queries(page, copied) == count_queries(page, empty)
    assert "shown" not in page.get(copied).context


def count_queries(page, address):
    with CaptureQueriesContext(connection) as captured:
        page.get(address)
    return len(captured)


def test_filter_and_group_of_the_head_limit_all_charts_and_change_none(page, workspace):
    for name, env in (("desk", "production"), ("desk", "test"), ("lamp", "test")):
        run_id = stored_run(workspace, name=name, extra={"metadata": {"env": env}})
    project = read_run(workspace, run_id).row.project_id
    base = f"/o/{workspace.pk}/projects/p/{project}/monitoring"
    copy_url = f"/o/{workspace.pk}/dashboards/for-project/{project}"
    copied = page.post(copy_url, {"query": "env:test"})
    address = copied["Location"].partition("?")[0]
    charts = Chart.objects.for_workspace(workspace)
    before = list(charts.in_order().values_list("series", "common_filters"))

    def counts(path, **params):
        cards = page.get(path, params | {"whole": "1"}).context["cards"]
        [card] = [card for card in cards if card.chart.title == "Trace count"]
        return {line.name: sum(filter(None, line.values)) for line in card.drawings[0].lines}

    assert "query=env%3Atest" in copied["Location"]
    assert sum(counts(address).values()) == 3
    assert sum(counts(address, query="env:test").values()) == 2
    grouped = counts(address, query="env:test", group="name")
    assert {name.rpartition(": ")[2]: count for name, count in grouped.items() if count} == {
        "desk": 1,
        "lamp": 1,
    }
    assert list(charts.in_order().values_list("series", "common_filters")) == before
    faulty = page.get(address, {"query": "nme:x"})
    assert faulty.status_code == 200
    assert "This query is not applied." in faulty.text
    assert sum(counts(address, query="nme:x").values()) == 3
    tiles = page.get(base, {"query": "env:test", "whole": "1"}).context["dashboard"].tiles
    assert tiles[0].value == "2"


def test_a_top_list_has_the_groups_with_the_largest_values(page, workspace):
    now = datetime.now(UTC) - timedelta(minutes=5)
    for number in range(12):
        for _ in range(1 if number == 11 else 2):
            end = now + timedelta(seconds=number)
            stored_run(
                workspace,
                name=f"tool {number}",
                run_type="tool",
                start=now,
                end_time=end.isoformat(),
            )
    address = create_dashboard(page, workspace)
    fields = {"title": "Slowest", "chart_type": "top-k", "metrics": ["latency_p50"]}

    refused = page.post(f"{address}/charts/new", fields | {"action": "save"})
    page.post(f"{address}/charts/new", fields | {"group_by": "name", "action": "save"})

    assert "A top list needs a grouping" in refused.text
    [card] = page.get(address, {"whole": "1"}).context["cards"]
    assert [name for name, _, _ in card.values] == [f"tool {n}" for n in range(11, 1, -1)]
    assert card.values[0][1] == "11.0 s"
