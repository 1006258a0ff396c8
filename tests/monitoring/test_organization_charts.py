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
from tests.monitoring.test_charts import frame
from tests.tracing.conftest import Api
from tests.tracing.stats.populations import run

pytestmark = pytest.mark.django_db


@pytest.fixture
def sibling(workspace):
    """Another workspace of the same organization."""
    return WorkspaceFactory(organization=workspace.organization)


def api_for(organization, *scopes: str, workspaces: Any = ()) -> Api:
    """A client with a key of the organization, that reaches these workspaces, or all of them."""
    _, secret = issue_key(
        organization=organization,
        name="wide",
        scopes=list(scopes or ["admin"]),
        workspaces=list(workspaces),
    )
    return Api(secret)


@pytest.fixture
def wide(workspace, sibling) -> Api:
    return api_for(workspace.organization)


def about(workspace, **said: Any) -> dict[str, Any]:
    return {"name": "runs", "metric": "run_count", "workspace_id": str(workspace.pk)} | said


def counts(points: list[dict[str, Any]], series_id: str) -> int:
    return sum(one["value"] for one in points if one["series_id"] == series_id)


@pytest.mark.parametrize("path", ["section", "section/clone", "preview", "create"])
def test_anonymous_is_refused(client, path):
    path = f"/org-charts/{path}"

    assert client.post(path, {}, content_type="application/json").status_code == 401


def test_another_organization_finds_nothing(wide, stranger):
    chart = OrganizationChartFactory(
        section__organization=stranger.organization, section__title="sentinel", title="sentinel"
    )

    section = f"/org-charts/section/{chart.section.pk}"
    assert wide.post(f"/org-charts/{chart.pk}", {}).status_code == 404
    assert wide.patch(f"/org-charts/{chart.pk}", {"title": "x"}).status_code == 404
    assert wide.delete(f"/org-charts/{chart.pk}").status_code == 404
    assert wide.post(section, {}).status_code == 404
    assert wide.delete(section).status_code == 404
    said = {"section_id": str(chart.section.pk)}
    assert wide.post("/org-charts/section/clone", said).status_code == 404
    assert wide.post("/org-charts/create", {"title": "x"} | said).status_code == 404
    assert wide.get("/org-charts/section").json() == []
    assert wide.post("/org-charts", {}).json() == {"sections": []}
    chart.refresh_from_db()
    assert (chart.title, OrganizationChart.objects.count()) == ("sentinel", 1)


def test_a_key_that_only_reads_changes_nothing(workspace):
    chart = OrganizationChartFactory(section__organization=workspace.organization)
    reader = api_for(workspace.organization, "read")

    assert reader.post("/org-charts/section", {"title": "x"}).status_code == 403
    assert reader.post("/org-charts/create", {"title": "x"}).status_code == 403
    assert reader.delete(f"/org-charts/{chart.pk}").status_code == 403
    assert reader.post(f"/org-charts/section/{chart.section.pk}", frame()).status_code == 200
    assert OrganizationSection.objects.count() == 1


def test_sections_and_charts_are_made_changed_copied_and_removed(wide, workspace):
    section = wide.post("/org-charts/section", {"title": "Mine"}).json()
    said = {"title": "Runs", "section_id": section["id"], "series": [about(workspace)]}
    chart = wide.post("/org-charts/create", said).json()

    changed = wide.patch(f"/org-charts/{chart['id']}", {"title": "All", "chart_type": "bar"}).json()

    assert (changed["title"], changed["chart_type"]) == ("All", "bar")
    assert changed["series"] == chart["series"]
    (listed,) = wide.get("/org-charts/section", title_contains="min").json()
    assert (listed["title"], listed["chart_count"]) == ("Mine", 1)
    assert wide.get("/org-charts/section", title_contains="other").json() == []
    copied = wide.post("/org-charts/section/clone", {"section_id": section["id"]}).json()
    whole = wide.post(f"/org-charts/section/{copied['id']}", frame()).json()
    assert whole["title"] == "Mine (copy)"
    assert [one["title"] for one in whole["charts"]] == ["All"]
    assert whole["charts"][0]["series"][0]["id"] != chart["series"][0]["id"]
    assert wide.delete(f"/org-charts/section/{copied['id']}").status_code == 204
    assert wide.delete(f"/org-charts/{chart['id']}").status_code == 204
    assert not OrganizationChart.objects.exists()


def test_each_series_counts_its_own_workspace(wide, workspace, sibling):
    ingest(workspace, run(5), run(10))
    ingest(sibling, run(7))
    series = [about(workspace, id="here"), about(sibling, id="there")]
    chart = wide.post("/org-charts/create", {"title": "Runs", "series": series}).json()

    data = wide.post(f"/org-charts/{chart['id']}", frame()).json()["data"]
    preview = wide.post(
        "/org-charts/preview", {"bucket_info": frame(), "chart": {"series": series}}
    ).json()["data"]
    (section,) = wide.post("/org-charts", frame()).json()["sections"]

    assert (counts(data, "here"), counts(data, "there")) == (2, 1)
    assert preview == data == section["charts"][0]["data"]


def test_a_workspace_that_the_caller_does_not_reach_has_no_points(wide, workspace, sibling):
    ingest(workspace, run(5))
    ingest(sibling, run(7))
    series = [about(workspace, id="here"), about(sibling, id="there")]
    chart = wide.post("/org-charts/create", {"title": "Runs", "series": series}).json()
    third = WorkspaceFactory(organization=workspace.organization)
    narrow = api_for(workspace.organization, workspaces=[workspace, third])

    data = narrow.post(f"/org-charts/{chart['id']}", frame()).json()["data"]
    asked = {"bucket_info": frame(), "chart": {"series": [about(sibling)]}}

    assert {one["series_id"] for one in data} == {"here"}
    assert narrow.post("/org-charts/preview", asked).status_code == 404


@pytest.mark.parametrize("which", ["stranger", "nobody", "none"])
def test_a_series_names_a_workspace_of_the_organization(wide, stranger, which):
    said = {
        "stranger": {"workspace_id": str(stranger.pk)},
        "nobody": {"workspace_id": str(uuid4())},
        "none": {},
    }[which]

    response = wide.post("/org-charts/create", {"title": "x", "series": [said]})

    assert response.status_code == (422 if which == "none" else 404)
    assert not OrganizationChart.objects.exists()


def test_the_dashboard_of_a_project_becomes_a_section(wide, sibling, stranger):
    project = ensure_project(sibling.pk, "shop")
    theirs = ensure_project(stranger.pk, "sentinel")

    copied = wide.post("/org-charts/section/clone", {"session_id": str(project.pk)}).json()
    refused = wide.post("/org-charts/section/clone", {"session_id": str(theirs.pk)})

    assert (copied["title"], refused.status_code) == ("shop", 404)
    charts = OrganizationChart.objects.filter(section_id=copied["id"])
    assert charts.count() > 5
    named = {one["workspace_id"] for chart in charts for one in chart.series}
    assert named == {str(sibling.pk)}


def test_the_number_of_queries_does_not_grow_with_the_sections(wide, workspace):
    def queries() -> int:
        with CaptureQueriesContext(connection) as counted:
            assert wide.get("/org-charts/section").status_code == 200
        return len([one for one in counted.captured_queries if "api_keys" not in one["sql"]])

    OrganizationSectionFactory(organization=workspace.organization)
    wide.get("/org-charts/section")
    before = queries()
    for _ in range(20):
        OrganizationChartFactory(section__organization=workspace.organization)

    assert queries() == before
