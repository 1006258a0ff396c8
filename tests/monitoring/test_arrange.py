"""The order and the widths of the charts of a dashboard."""

from __future__ import annotations

from uuid import uuid4

import pytest

from apps.core import errors
from apps.monitoring.models import Chart, Section
from apps.monitoring.services import dashboards
from tests.console.conftest import create_workspace_user, signed_in
from tests.factories.monitoring import ChartFactory, SectionFactory
from tests.factories.organizations import WorkspaceFactory

pytestmark = pytest.mark.django_db


@pytest.fixture
def section(workspace) -> Section:
    section = SectionFactory(workspace=workspace)
    for title in "abc":
        ChartFactory(section=section, title=title)
    return section


def arrangement(section):
    return [(chart.title, chart.columns) for chart in section.charts.in_order()]


def address(section):
    return f"/o/{section.workspace_id}/dashboards/{section.pk}/arrange"


def ids(section):
    return {chart.title: str(chart.pk) for chart in section.charts.all()}


def test_charts_are_put_in_order_with_their_widths(page, section):
    chart = ids(section)
    body = {"chart": [chart["c"], chart["a"], chart["b"]], "columns": ["2", "1", "3"]}

    responses = [page.post(address(section), body) for _ in range(2)]

    assert [response.status_code for response in responses] == [204, 204]
    assert arrangement(section) == [("c", 2), ("a", 1), ("b", 3)]


def test_charts_that_are_not_listed_follow(page, section):
    chart = ids(section)

    page.post(address(section), {"chart": chart["c"], "columns": "1"})

    assert arrangement(section) == [("c", 1), ("a", 1), ("b", 1)]


@pytest.mark.parametrize(
    "change",
    [
        {"columns": ["1", "1"]},
        {"columns": ["1", "1", "4"]},
        {"columns": ["1", "1", "0"]},
        {"columns": ["1", "1", "²"]},
        {"columns": ["1", "1", "-1"]},
        {"chart": ["x", "y", "z"]},
        {"chart": [], "columns": []},
        {"chart": ["{a}", "{a}", "{b}"]},
    ],
)
def test_an_invalid_arrangement_changes_nothing(page, section, change):
    chart = ids(section)
    body = {"chart": ["{c}", "{b}", "{a}"], "columns": ["2", "2", "2"]} | change
    body["chart"] = [text.format(**chart) for text in body["chart"]]

    response = page.post(address(section), body)

    assert response.status_code == 422
    assert arrangement(section) == [("a", 1), ("b", 1), ("c", 1)]


def test_charts_of_other_dashboards_are_not_found(page, section):
    other = ChartFactory(section__workspace=section.workspace)

    responses = [
        page.post(address(section), {"chart": str(chart_id), "columns": "2"})
        for chart_id in (other.pk, uuid4())
    ]

    assert [response.status_code for response in responses] == [404, 404]
    assert Chart.unscoped.filter(columns=2).count() == 0


def test_viewers_and_outsiders_arrange_nothing(section):
    body = {"chart": ids(section)["c"], "columns": "2"}
    viewer = signed_in(create_workspace_user(section.workspace, "viewer"))
    outsider = signed_in(create_workspace_user(WorkspaceFactory(), "admin"))

    assert viewer.post(address(section), body).status_code == 403
    assert outsider.post(address(section), body).status_code == 404
    assert arrangement(section)[0] == ("a", 1)


def test_viewers_get_no_handles(page, section):
    base = address(section).removesuffix("/arrange")
    viewer = signed_in(create_workspace_user(section.workspace, "viewer"))

    assert "chart-move" in page.get(f"{base}?whole=1").content.decode()
    assert "chart-move" not in viewer.get(f"{base}?whole=1").content.decode()


def test_the_form_of_a_chart_sets_width_and_position(page, section):
    chart_id = ids(section)["c"]
    base = address(section).removesuffix("/arrange")
    form = page.get(f"{base}/charts/{chart_id}").context["form"]
    fields = {"title": "c", "chart_type": "line", "metrics": ["run_count"], "action": "save"}

    page.post(f"{base}/charts/{chart_id}", fields | {"columns": "3", "position": "1"})
    moved = arrangement(section)
    page.post(f"{base}/charts/{chart_id}", fields | {"columns": "2", "position": "99"})

    assert (form["position"].initial, form["columns"].initial) == (3, "1")
    assert moved == [("c", 3), ("a", 1), ("b", 1)]
    assert arrangement(section) == [("a", 1), ("b", 1), ("c", 2)]


def test_a_new_chart_comes_last(section):
    dashboards.arrange_charts(
        section=section, layout=[(chart.pk, 1) for chart in section.charts.in_order()]
    )

    dashboards.create_chart(
        workspace_id=section.workspace_id, section_id=section.pk, title="new", series=[]
    )

    assert [title for title, _ in arrangement(section)] == ["a", "b", "c", "new"]


def test_a_copy_keeps_the_arrangement(section):
    first, *_, last = section.charts.in_order()
    dashboards.arrange_charts(section=section, layout=[(last.pk, 3), (first.pk, 2)])

    assert arrangement(dashboards.clone_section(section=section)) == arrangement(section)


def test_an_arrangement_of_a_deleted_chart_is_not_found(section):
    chart = section.charts.first()
    chart_id = chart.pk
    chart.delete()

    with pytest.raises(errors.NotFound):
        dashboards.arrange_charts(section=section, layout=[(chart_id, 1)])
