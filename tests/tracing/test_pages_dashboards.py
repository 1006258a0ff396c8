"""Dashboards of one's own: made, filled, changed, copied, deleted; and who may."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from apps.monitoring.models import Chart, Section
from tests.console.conftest import person, signed_in
from tests.factories.organizations import WorkspaceFactory
from tests.factories.tracing import read, stored_run

pytestmark = pytest.mark.django_db
SAID = {"title": "Failed", "chart_type": "line", "metrics": ["run_count", "error_rate"]}


@pytest.fixture
def workspace():
    return WorkspaceFactory()


@pytest.fixture
def page(workspace):
    return signed_in(person(workspace, "editor"))


def dashboard(page, workspace):
    made = page.post(f"/o/{workspace.pk}/dashboards", {"title": "Desk"})
    return made["Location"]


def test_a_chart_is_previewed_saved_changed_and_deleted(page, workspace):
    stored_run(workspace, error="Boom")
    address = dashboard(page, workspace)

    preview = page.post(f"{address}/charts/new", SAID | {"action": "preview"})
    assert not Chart.unscoped.exists()
    page.post(f"{address}/charts/new", SAID | {"action": "save"})
    chart = Chart.unscoped.get()
    shown = page.get(f"{address}?whole=1").context["chart_views"]
    page.post(f"{address}/charts/{chart.pk}", SAID | {"title": "All", "action": "save"})
    chart.refresh_from_db()

    lines = preview.context["preview"].drawing.lines
    assert [(line.name, sum(v or 0 for v in line.values)) for line in lines] == [
        ("run count", 1),
        ("error rate", 1),
    ]
    assert [one.chart.pk for one in shown] == [chart.pk]
    assert chart.title == "All"
    page.post(f"{address}/charts/{chart.pk}", {"action": "delete"})
    assert not Chart.unscoped.exists()


def test_a_chart_that_makes_no_sense_is_refused_where_it_does_not(page, workspace):
    address = dashboard(page, workspace)

    refused = page.post(f"{address}/charts/new", SAID | {"filter": "eq(nme, 1)", "action": "save"})

    assert refused.status_code == 422
    assert "nme" in refused.context["form"].errors["filter"][0]
    assert not Chart.unscoped.exists()


def test_a_projects_own_dashboard_is_copied_and_a_copy_again(page, workspace):
    project_id = read(workspace, stored_run(workspace)).row.project_id

    copied = page.post(f"/o/{workspace.pk}/dashboards/for-project/{project_id}")["Location"]
    again = page.post(f"{copied}/change", {"action": "clone"})["Location"]

    counts = [len(page.get(f"{at}?whole=1").context["chart_views"]) for at in (copied, again)]
    assert counts[0] == counts[1] > 5
    page.post(f"{again}/change", {"action": "delete"})
    assert [str(one.pk) for one in Section.unscoped.all()] == [copied.rpartition("/")[2]]


def test_a_chart_that_says_more_than_the_form_keeps_its_lines(page, workspace):
    project_id = read(workspace, stored_run(workspace)).row.project_id
    copied = page.post(f"/o/{workspace.pk}/dashboards/for-project/{project_id}")["Location"]
    chart = Chart.unscoped.get(title="Trace latency")

    said = {"title": "How long", "chart_type": "bar", "project": str(project_id)}
    page.post(f"{copied}/charts/{chart.pk}", said | {"action": "save"})
    changed = Chart.unscoped.get(pk=chart.pk)

    assert (changed.title, changed.chart_type) == ("How long", "bar")
    assert [one["name"] for one in changed.series] == ["p50", "p95", "p99"]
    assert [one["metric_definition"] for one in changed.series] == [
        one["metric_definition"] for one in chart.series
    ]


def test_charts_of_one_project_lead_to_its_runs(page, workspace):
    project_id = read(workspace, stored_run(workspace)).row.project_id
    copied = page.post(f"/o/{workspace.pk}/dashboards/for-project/{project_id}")["Location"]

    shown = page.get(f"{copied}?whole=1").context["chart_views"]

    [count] = [one.drawing for one in shown if one.chart.title == "Trace count"]
    list_of = f"/o/{workspace.pk}/projects/p/{project_id}?show=all"
    assert count.href == list_of
    assert count.lines[0].href.startswith(f"{list_of}&filter=and%28eq%28is_root")


def test_only_those_who_may_change_dashboards_do(page, workspace):
    address = dashboard(page, workspace)
    viewer = signed_in(person(workspace, "viewer"))
    stranger = signed_in(person(WorkspaceFactory(), "admin"))

    assert viewer.get(address).status_code == 200
    assert viewer.post(f"{address}/change", {"action": "delete"}).status_code == 403
    assert viewer.post(f"{address}/charts/new", SAID).status_code == 403
    assert stranger.get(address).status_code == 404
    assert stranger.post(f"{address}/change", {"action": "delete"}).status_code == 404
    assert Section.unscoped.count() == 1


def test_the_page_of_a_dashboard_costs_the_same_whatever_is_on_it(page, workspace):
    project_id = read(workspace, stored_run(workspace)).row.project_id
    copied = page.post(f"/o/{workspace.pk}/dashboards/for-project/{project_id}")["Location"]
    empty = dashboard(page, workspace)

    assert cost(page, copied) == cost(page, empty)
    assert "shown" not in page.get(copied).context


def cost(page, address):
    with CaptureQueriesContext(connection) as asked:
        page.get(address)
    return len(asked)
