"""/org-charts: charts over the workspaces of an organization."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from apps.api_keys.services import issue_key
from apps.monitoring.models import OrganizationChart, OrganizationSection
from apps.tracing.services import ensure_project
from tests.factories.monitoring import OrganizationChartFactory, OrganizationSectionFactory
from tests.factories.organizations import WorkspaceFactory
from tests.factories.tracing import ingest
from tests.monitoring.test_charts import time_range
from tests.tracing.conftest import Api
from tests.tracing.stats.populations import build_run

pytestmark = pytest.mark.django_db


@pytest.fixture
def sibling(workspace):
    """Another workspace of the same organization."""
    return WorkspaceFactory(organization=workspace.organization)


def api_for(organization, *scopes: str, workspaces: Any = ()) -> Api:
    """Create a client with a key of the organization for these workspaces, or for all."""
    _, secret = issue_key(
        organization=organization,
        name="wide",
        scopes=list(scopes or ["admin"]),
        workspaces=list(workspaces),
    )
    return Api(secret)


@pytest.fixture
def organization_api(workspace, sibling) -> Api:
    return api_for(workspace.organization)


def build_series(workspace, **fields: Any) -> dict[str, Any]:
    return {"name": "runs", "metric": "run_count", "workspace_id": str(workspace.pk)} | fields


def count_points(points: list[dict[str, Any]], series_id: str) -> int:
    return sum(row["value"] for row in points if row["series_id"] == series_id)


@pytest.mark.parametrize("path", ["section", "section/clone", "preview", "create"])
def test_anonymous_request_is_rejected(client, path):
    path = f"/org-charts/{path}"

    assert client.post(path, {}, content_type="application/json").status_code == 401


def test_charts_of_another_organization_are_not_found(organization_api, other_workspace):
    chart = OrganizationChartFactory(
        section__organization=other_workspace.organization,
        section__title="sentinel",
        title="sentinel",
    )

    section = f"/org-charts/section/{chart.section.pk}"
    assert organization_api.post(f"/org-charts/{chart.pk}", {}).status_code == 404
    assert organization_api.patch(f"/org-charts/{chart.pk}", {"title": "x"}).status_code == 404
    assert organization_api.delete(f"/org-charts/{chart.pk}").status_code == 404
    assert organization_api.post(section, {}).status_code == 404
    assert organization_api.delete(section).status_code == 404
    body = {"section_id": str(chart.section.pk)}
    assert organization_api.post("/org-charts/section/clone", body).status_code == 404
    assert organization_api.post("/org-charts/create", {"title": "x"} | body).status_code == 404
    assert organization_api.get("/org-charts/section").json() == []
    assert organization_api.post("/org-charts", {}).json() == {"sections": []}
    chart.refresh_from_db()
    assert (chart.title, OrganizationChart.objects.count()) == ("sentinel", 1)


def test_read_key_cannot_change_organization_charts(workspace):
    chart = OrganizationChartFactory(section__organization=workspace.organization)
    reader = api_for(workspace.organization, "read")

    assert reader.post("/org-charts/section", {"title": "x"}).status_code == 403
    assert reader.post("/org-charts/create", {"title": "x"}).status_code == 403
    assert reader.delete(f"/org-charts/{chart.pk}").status_code == 403
    assert reader.post(f"/org-charts/section/{chart.section.pk}", time_range()).status_code == 200
    assert OrganizationSection.objects.count() == 1


def test_sections_and_charts_are_created_updated_cloned_and_deleted(organization_api, workspace):
    section = organization_api.post("/org-charts/section", {"title": "Mine"}).json()
    body = {"title": "Runs", "section_id": section["id"], "series": [build_series(workspace)]}
    chart = organization_api.post("/org-charts/create", body).json()

    changed = organization_api.patch(
        f"/org-charts/{chart['id']}", {"title": "All", "chart_type": "bar"}
    ).json()

    assert (changed["title"], changed["chart_type"]) == ("All", "bar")
    assert changed["series"] == chart["series"]
    (listed,) = organization_api.get("/org-charts/section", title_contains="min").json()
    assert (listed["title"], listed["chart_count"]) == ("Mine", 1)
    assert organization_api.get("/org-charts/section", title_contains="other").json() == []
    copied = organization_api.post(
        "/org-charts/section/clone", {"section_id": section["id"]}
    ).json()
    whole = organization_api.post(f"/org-charts/section/{copied['id']}", time_range()).json()
    assert whole["title"] == "Mine (copy)"
    assert [row["title"] for row in whole["charts"]] == ["All"]
    assert whole["charts"][0]["series"][0]["id"] != chart["series"][0]["id"]
    assert organization_api.delete(f"/org-charts/section/{copied['id']}").status_code == 204
    assert organization_api.delete(f"/org-charts/{chart['id']}").status_code == 204
    assert not OrganizationChart.objects.exists()


def test_each_series_counts_runs_of_its_workspace(organization_api, workspace, sibling):
    ingest(workspace, build_run(5), build_run(10))
    ingest(sibling, build_run(7))
    series = [build_series(workspace, id="here"), build_series(sibling, id="there")]
    chart = organization_api.post("/org-charts/create", {"title": "Runs", "series": series}).json()

    data = organization_api.post(f"/org-charts/{chart['id']}", time_range()).json()["data"]
    preview = organization_api.post(
        "/org-charts/preview", {"bucket_info": time_range(), "chart": {"series": series}}
    ).json()["data"]
    (section,) = organization_api.post("/org-charts", time_range()).json()["sections"]

    assert (count_points(data, "here"), count_points(data, "there")) == (2, 1)
    assert preview == data == section["charts"][0]["data"]


def test_series_of_an_inaccessible_workspace_has_no_points(organization_api, workspace, sibling):
    ingest(workspace, build_run(5))
    ingest(sibling, build_run(7))
    series = [build_series(workspace, id="here"), build_series(sibling, id="there")]
    chart = organization_api.post("/org-charts/create", {"title": "Runs", "series": series}).json()
    third = WorkspaceFactory(organization=workspace.organization)
    limited_api = api_for(workspace.organization, workspaces=[workspace, third])

    data = limited_api.post(f"/org-charts/{chart['id']}", time_range()).json()["data"]
    body = {"bucket_info": time_range(), "chart": {"series": [build_series(sibling)]}}

    assert {row["series_id"] for row in data} == {"here"}
    assert limited_api.post("/org-charts/preview", body).status_code == 404


@pytest.mark.parametrize("workspace_kind", ["foreign", "missing", "none"])
def test_series_must_name_a_workspace_of_the_organization(
    organization_api, other_workspace, workspace_kind
):
    body = {
        "foreign": {"workspace_id": str(other_workspace.pk)},
        "missing": {"workspace_id": str(uuid4())},
        "none": {},
    }[workspace_kind]

    response = organization_api.post("/org-charts/create", {"title": "x", "series": [body]})

    assert response.status_code == (422 if workspace_kind == "none" else 404)
    assert not OrganizationChart.objects.exists()


def test_project_dashboard_is_cloned_as_a_section(organization_api, sibling, other_workspace):
    project = ensure_project(sibling.pk, "shop")
    foreign_project = ensure_project(other_workspace.pk, "sentinel")

    copied = organization_api.post(
        "/org-charts/section/clone", {"session_id": str(project.pk)}
    ).json()
    rejected = organization_api.post(
        "/org-charts/section/clone", {"session_id": str(foreign_project.pk)}
    )

    assert (copied["title"], rejected.status_code) == ("shop", 404)
    charts = OrganizationChart.objects.filter(section_id=copied["id"])
    assert charts.count() > 5
    workspace_ids = {row["workspace_id"] for chart in charts for row in chart.series}
    assert workspace_ids == {str(sibling.pk)}


def test_query_count_does_not_grow_with_the_sections(organization_api, workspace):
    def count_queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            assert organization_api.get("/org-charts/section").status_code == 200
        return len([row for row in captured.captured_queries if "api_keys" not in row["sql"]])

    OrganizationSectionFactory(organization=workspace.organization)
    organization_api.get("/org-charts/section")
    before = count_queries()
    for _ in range(20):
        OrganizationChartFactory(section__organization=workspace.organization)

    assert count_queries() == before
