"""/charts, and the dashboard of a project."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from apps.feedback.models import Feedback
from apps.monitoring.models import Chart, Section
from apps.organizations.models import ResourceType, Tagging
from apps.organizations.services import tags
from tests.factories.monitoring import ChartFactory, SectionFactory
from tests.factories.tracing import ProjectFactory, ingest
from tests.tracing.stats.populations import NOON, model_call, project_of, roll_up, run

pytestmark = pytest.mark.django_db


def frame(**fields: Any) -> dict[str, Any]:
    return {
        "start_time": NOON.isoformat(),
        "end_time": (NOON + timedelta(hours=2)).isoformat(),
        "stride": {"hours": 1},
    } | fields


def preview(api, *series: dict[str, Any], **fields: Any) -> list[dict[str, Any]]:
    chart = {"series": list(series), "chart_type": fields.pop("chart_type", "line")}
    chart |= {"common_filters": fields.pop("common_filters", None)}
    response = api.post("/charts/preview", {"bucket_info": frame(**fields), "chart": chart})
    assert response.status_code == 200, response.content
    return response.json()["data"]


def values(points: list[dict[str, Any]], group: str | None = None) -> list[Any]:
    return [point["value"] for point in points if point["group"] == group]


@pytest.mark.parametrize("path", ["/charts/section", "/charts", "/charts/preview"])
def test_anonymous_request_is_rejected(client, db, path):
    assert client.post(path, {}, content_type="application/json").status_code == 401


def test_charts_of_another_workspace_are_not_found(api, stranger):
    chart = ChartFactory(section__workspace=stranger, title="sentinel")

    assert api.post(f"/charts/{chart.pk}", {}).status_code == 404
    assert api.patch(f"/charts/{chart.pk}", {"title": "x"}).status_code == 404
    assert api.delete(f"/charts/section/{chart.section.pk}").status_code == 404
    assert (
        api.post("/charts/section/clone", {"section_id": str(chart.section.pk)}).status_code == 404
    )
    assert (
        api.post("/charts/create", {"title": "x", "section_id": str(chart.section.pk)}).status_code
        == 404
    )
    assert api.get("/charts/section").json() == []
    assert api.post("/charts", {}).json() == {"sections": []}
    chart.refresh_from_db()
    assert chart.title == "sentinel"


def test_read_key_cannot_change_charts(api_of, workspace):
    section = SectionFactory(workspace=workspace)
    reader = api_of(workspace, "read")

    assert reader.post("/charts/section", {"title": "x"}).status_code == 403
    assert reader.delete(f"/charts/section/{section.pk}").status_code == 403
    assert reader.post("/charts/create", {"title": "x"}).status_code == 403
    assert reader.post(f"/charts/section/{section.pk}", {}).status_code == 200
    assert Section.objects.for_workspace(workspace).count() == 1


def test_sections_and_charts_are_created_updated_cloned_and_deleted(api, workspace):
    section = api.post("/charts/section", {"title": "Mine", "description": None}).json()
    body = {
        "title": "Runs",
        "section_id": section["id"],
        "series": [{"name": "all", "metric": "run_count"}],
    }
    chart = api.post("/charts/create", body).json()
    changed = api.patch(f"/charts/{chart['id']}", {"title": "Errors", "chart_type": "bar"}).json()

    assert (changed["title"], changed["chart_type"]) == ("Errors", "bar")
    assert changed["series"] == chart["series"]
    (listed,) = api.get("/charts/section", title_contains="min").json()
    assert (listed["title"], listed["chart_count"]) == ("Mine", 1)
    whole = api.post(f"/charts/section/{section['id']}", frame()).json()
    assert [one["title"] for one in whole["charts"]] == ["Errors"]
    copied = api.post("/charts/section/clone", {"section_id": section["id"]}).json()
    assert copied["title"] == "Mine (copy)"
    assert Chart.objects.for_workspace(workspace).count() == 2
    assert api.delete(f"/charts/{chart['id']}").status_code == 204
    assert api.delete(f"/charts/section/{copied['id']}").status_code == 204
    assert Chart.objects.for_workspace(workspace).count() == 0


@pytest.mark.parametrize(
    "series",
    [
        {"metric": "nonsense"},
        {"metric_definition": {"type": "median"}},
        {"metric_definition": {"type": "sum", "field": "name"}},
        {"metric_definition": {"type": "percentile", "field": "total_cost", "params": {"p": 101}}},
        {"metric_definition": {"type": "ratio"}},
        {"metric": "run_count", "filters": {"filter": "eq(name"}},
        {"metric": "run_count", "group_by": {"attribute": "metadata"}},
        {"metric": "run_count", "group_by": {"attribute": "colour"}},
        {"metric": "run_count", "project_metric": "cpu_usage"},
        {"metric": "feedback_score_avg", "group_by": {"attribute": "name"}},
        {"metric_definition": {"type": "count", "entity": "planet"}},
        {"metric_definition": {"type": "count", "entity": "feedback"}},
        {"metric": "run_count", "workspace_id": "00000000-0000-4000-8000-000000000000"},
        {"metric": "run_count", "filter_definition": {"source_type": "planet"}},
        {"group_by_definitions": [{"attribute": "name"}, {"attribute": "run_type"}]},
        {"group_by_definitions": [{"attribute": "feedback_label", "path": "k"}]},
    ],
)
def test_invalid_series_is_rejected(api, workspace, series):
    created = api.post("/charts/create", {"title": "x", "series": [series]})
    preview = api.post("/charts/preview", {"bucket_info": frame(), "chart": {"series": [series]}})

    assert {created.status_code, preview.status_code} <= {400, 422}
    assert Chart.objects.for_workspace(workspace).count() == 0


def test_points_are_the_same_before_and_after_rollup(api, workspace):
    ingest(workspace, run(5, seconds=2), run(70, error="broke"), run(75), model_call(80))

    for _ in range(2):
        counted = preview(api, {"metric": "run_count"})
        assert values(counted) == [1, 3]
        assert counted[0]["timestamp"] == NOON.isoformat().replace("+00:00", "Z")
        assert values(preview(api, {"metric": "error_rate"})) == [0.0, 1 / 3]
        assert values(preview(api, {"metric": "total_tokens"})) == [0, 15]
        assert values(preview(api, {"metric": "latency_p50"}))[0] == pytest.approx(2, rel=0.01)
        roll_up()


def test_metric_definition_determines_the_value(api, workspace):
    ingest(workspace, run(1, seconds=2), run(2, seconds=4, error="broke"), run(3, seconds=12))
    failed = {"type": "count", "filter": "neq(error, null)"}

    def one(definition: dict[str, Any]) -> Any:
        return values(preview(api, {"metric_definition": definition}))[0]

    assert one({"type": "count"}) == 3
    assert one({"type": "sum", "field": "latency_seconds"}) == 18.0
    assert one({"type": "avg", "field": "latency_seconds"}) == 6.0
    assert one({"type": "max", "field": "latency_seconds"}) == 12.0
    assert one({"type": "min", "field": "latency_seconds"}) == 2.0
    assert one({"type": "percentile", "field": "latency_seconds", "params": {"p": 50}}) == 4.0
    assert one({"type": "ratio", "numerator": failed, "denominator": {"type": "count"}}) == 1 / 3


def test_series_over_datasets_counts_runs_of_their_experiments(api, workspace):
    of_dataset, of_another = uuid4(), uuid4()
    for name, dataset_id in (("plain", None), ("e1", of_dataset), ("e2", of_another)):
        ProjectFactory(workspace=workspace, name=name, reference_dataset_id=dataset_id)
        ingest(workspace, run(5, session_name=name))

    def counted(**definition: Any) -> Any:
        return values(preview(api, {"metric": "run_count", "filter_definition": definition}))[0]

    assert counted(source_type="dataset", dataset_ids=[str(of_dataset)]) == 1
    assert counted(source_type="dataset") == 2
    assert counted(source_type="tracing_project") == 3


def test_section_list_is_filtered_by_tags(api, workspace, stranger):
    key = tags.create_key(workspace_id=workspace.pk, key="Team")
    value = tags.create_value(key=key, value="search")
    marked, _ = SectionFactory(workspace=workspace), SectionFactory(workspace=workspace)
    tags.tag(value=value, resource_type=ResourceType.DASHBOARD, resource_id=marked.pk)

    (section,) = api.get("/charts/section", tag_value_id=str(value.pk)).json()

    assert section["id"] == str(marked.pk)
    assert api.get("/charts/section", tag_value_id=str(uuid4())).json() == []
    assert api.delete(f"/charts/section/{marked.pk}").status_code == 204
    assert not Tagging.objects.for_workspace(workspace).exists()


def test_max_groups_keeps_the_largest_groups(api, workspace):
    ingest(workspace, *[run(n, name=name) for n, name in enumerate("aaabbc")])
    roll_up()

    points = preview(
        api, {"metric": "run_count", "group_by": {"attribute": "name", "max_groups": 2}}
    )

    assert {point["group"] for point in points} == {"a", "b"}
    assert values(points, "a") == [3, 0]
    assert values(points, "b") == [2, 0]


def test_runs_are_grouped_by_tags_and_metadata(api, workspace):
    ingest(
        workspace,
        run(1, tags=["x", "y"], extra={"metadata": {"tenant": "one"}}),
        run(2, tags=["x"], extra={"metadata": {"tenant": "two"}}),
        run(3),
    )

    tags = preview(api, {"metric": "run_count", "group_by": {"attribute": "tag"}})
    tenants = preview(
        api, {"metric": "run_count", "group_by": {"attribute": "metadata", "path": "tenant"}}
    )

    assert (values(tags, "x")[0], values(tags, "y")[0]) == (2, 1)
    assert (values(tenants, "one")[0], values(tenants, "two")[0]) == (1, 1)


def test_kpi_chart_has_one_value_for_the_whole_period(api, workspace):
    ingest(workspace, run(1), run(70))

    (point,) = preview(api, {"metric": "run_count"}, chart_type="kpi")

    assert point["value"] == 2


def test_filters_of_chart_and_series_are_combined(api, workspace):
    ingest(workspace, run(1, name="a"), run(2, name="a", error="broke"), run(3, name="b"))

    points = preview(
        api,
        {"metric": "run_count", "filters": {"filter": 'eq(name, "a")'}},
        common_filters={"filter": 'eq(status, "success")'},
    )

    assert values(points)[0] == 1


def test_feedback_counts_in_the_bucket_in_which_its_run_started(api, workspace):
    first, second = run(1), run(70)
    ingest(workspace, first, second)
    for one, score in ((first, 1.0), (first, 0.0), (second, 0.5)):
        Feedback.unscoped.create(
            workspace=workspace,
            project_id=project_of(workspace),
            run_id=one["id"],
            trace_id=one["id"],
            is_root=True,
            created_at=NOON,
            start_time=one["start_time"],
            key="helpful",
            score=score,
        )

    points = preview(api, {"metric": "feedback_score_avg", "feedback_key": "helpful"})
    definition = {
        "type": "max",
        "field": "feedback_score",
        "params": {"feedback_key": "helpful"},
    }

    counted = {"type": "count", "entity": "feedback", "params": {"feedback_key": "helpful"}}

    assert values(points) == [0.5, 0.5]
    assert values(preview(api, {"metric_definition": counted})) == [2, 1]
    assert values(preview(api, {"metric_definition": definition})) == [1.0, 0.5]


def test_project_has_a_prebuilt_dashboard_that_can_be_cloned(api, workspace):
    root = run(1)
    tool = run(2, below=root, run_type="tool", name="search")
    ingest(workspace, root, tool, model_call(3, below=root))
    roll_up()

    dashboard = api.post(f"/sessions/{project_of(workspace)}/dashboard", frame()).json()

    parts = {part["title"]: part["charts"] for part in dashboard["sub_sections"]}
    assert list(parts) == [
        "Traces",
        "LLM Calls",
        "Cost & Tokens",
        "Tools",
        "Run Types",
        "Feedback Scores",
    ]
    assert values(parts["Traces"][0]["data"])[0] == 1
    tools = parts["Tools"][0]["data"]
    assert {point["group"] for point in tools} == {"search"}
    assert values(parts["Tools"][1]["data"], "search")[0] == 1.0
    assert values(parts["LLM Calls"][1]["data"])[0] == 1.0
    assert {point["group"] for point in parts["Run Types"][0]["data"]} == {"model", "search"}
    cloned = api.post("/charts/section/clone", {"session_id": str(project_of(workspace))}).json()
    assert cloned["session_id"] == str(project_of(workspace))
    chart_count = sum(len(charts) for charts in parts.values())
    assert Chart.objects.for_workspace(workspace).count() == chart_count > 0


def test_omit_data_returns_charts_without_points(api, workspace):
    chart = ChartFactory(section__workspace=workspace)

    assert api.post(f"/charts/{chart.pk}", {"omit_data": True}).json()["data"] == []


def test_unknown_time_zone_is_rejected(api):
    body = {"bucket_info": frame(timezone="Moon/Base"), "chart": {"series": []}}

    assert api.post("/charts/preview", body).status_code == 422


def test_text_block_stores_and_returns_its_markdown(api, workspace):
    section = SectionFactory(workspace=workspace)
    body = {"chart_type": "text", "section_id": str(section.pk), "markdown": "# Said"}

    made = api.post("/charts/create", body).json()
    changed = api.patch(f"/charts/{made['id']}", {"markdown": "## Said again"}).json()
    (read,) = api.post(f"/charts/section/{section.pk}", frame()).json()["charts"]
    untitled = api.post("/charts/create", {"section_id": str(section.pk), "series": []})

    assert (made["markdown"], made["title"]) == ("# Said", "")
    assert (changed["markdown"], changed["chart_type"]) == ("## Said again", "text")
    assert (read["markdown"], read["data"]) == ("## Said again", [])
    assert untitled.status_code == 422
