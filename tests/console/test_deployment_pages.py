import html
import re
from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from apps.deployments.call_snippets import example_input
from apps.deployments.models import (
    Deployment,
    EnvironmentVariable,
    LogKind,
    RevisionGraph,
    StatusChange,
)
from apps.deployments.queries import NEWEST_TRACES, Stage, build_stages
from apps.deployments.services import environment
from tests.console.conftest import create_workspace_user, signed_in
from tests.factories.deployments import DeploymentFactory, LogLineFactory, RevisionFactory
from tests.factories.tracing import ProjectFactory, read_run, stored_run

pytestmark = pytest.mark.django_db
SECRET = "sk-do-not-show"


@pytest.fixture
def base(workspace):
    return f"/o/{workspace.pk}/deployments"


@pytest.fixture
def deployment(workspace):
    return DeploymentFactory(workspace=workspace, name="support", branch="main")


def count_queries(page, address):
    page.get(address)
    with CaptureQueriesContext(
        connection,
    ) as captured:
        assert page.get(address).status_code == 200
    return len(captured)


def test_empty_workspace_shows_how_to_create_a_deployment(page, base):
    content = page.get(base).content.decode()

    assert "No deployments yet" in content
    assert "manage.py deploy --organization Northwind" in content


def test_traces_projects_and_revisions_of_a_deployment_link_each_other(
    page, base, workspace, deployment
):
    revision = RevisionFactory(deployment=deployment, status="DEPLOYED", built_attempt=1)
    metadata = {
        "LANGSMITH_HOST_PROJECT_NAME": deployment.name,
        "LANGSMITH_HOST_REVISION_ID": str(revision.pk),
        "revision_id": str(revision.number),
    }
    run_id = stored_run(workspace, session_name=deployment.name, extra={"metadata": metadata})
    project = f"/o/{workspace.pk}/projects/p/{read_run(workspace, run_id).row.project_id}"
    viewer = signed_in(create_workspace_user(workspace, "annotator"))

    trace = page.get(f"{project}/r/{run_id}").text
    revision_page = page.get(f"{base}/{deployment.pk}/revisions/{revision.pk}").text
    address = f"{project}?query=revision:{revision.number}&amp;range=all"

    assert f'href="{base}/{deployment.pk}"' in trace
    assert f'href="{base}/{deployment.pk}/revisions/{revision.pk}"' in trace
    assert f'href="{base}/{deployment.pk}"' in page.get(project).text
    assert f'href="{address}"' in revision_page
    listed = page.get(html.unescape(address)).context["list"].rows
    assert [item.row.id for item in listed] == [run_id]
    for path in (project, f"{project}/r/{run_id}"):
        assert f'href="{base}/{deployment.pk}' not in viewer.get(path).text


def test_query_count_of_deployment_list_does_not_grow_with_its_length(page, base, workspace):
    RevisionFactory(deployment=DeploymentFactory(workspace=workspace))
    with_one = count_queries(page, base)
    for _ in range(5):
        RevisionFactory(deployment=DeploymentFactory(workspace=workspace))

    assert count_queries(page, base) == with_one


def test_deployment_list_shows_the_state_of_each_deployment(page, base, workspace, settings):
    settings.BASE_URL = settings.API_BASE_URL = "https://slipway.example"
    serving = RevisionFactory(deployment__workspace=workspace, status="DEPLOYED").deployment
    serving.active_revision = serving.revisions.get()
    serving.save()
    RevisionFactory(deployment__workspace=workspace, status="BUILD_FAILED")
    RevisionFactory(deployment__workspace=workspace, status="BUILDING")
    DeploymentFactory(workspace=workspace)
    RevisionFactory(deployment__name="of-others", status="DEPLOYED")

    content = page.get(base).content.decode()

    for text in ("Serving</span>", "Failed</span>", "Starting</span>", "Not serving</span>"):
        assert content.count(text) == 1
    assert f"https://slipway.example/agents/{serving.slug}" in content
    assert "of-others" not in content


def test_deployment_list_polls_only_while_a_build_is_in_progress(page, base, deployment):
    revision = RevisionFactory(deployment=deployment, status="BUILDING")
    assert 'hx-trigger="every 3s"' in page.get(base).content.decode()

    revision.status = "DEPLOYED"
    revision.save()

    assert "hx-trigger" not in page.get(base).content.decode()


def test_form_creates_a_deployment_and_redirects_to_its_first_revision(
    page, base, workspace, editor
):
    form = {
        "name": "planner",
        "repo_url": "https://git.example/planner.git",
        "branch": "",
        "config_path": "langgraph.json",
        "variables": f"# keys\nMODEL_KEY='{SECRET}'\nexport REGION=eu\n",
        "tracing": "on",
    }

    response = page.post(f"{base}/new", form)

    deployment = Deployment.objects.for_workspace(workspace).get()
    revision = deployment.revisions.get()
    assert response["Location"] == f"{base}/{deployment.pk}/revisions/{revision.pk}"
    assert (deployment.name, deployment.tracing, deployment.created_by) == ("planner", True, editor)
    names = EnvironmentVariable.objects.for_workspace(workspace).values_list("name", flat=True)
    assert set(names) == {"MODEL_KEY", "REGION"}


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        ("name", "-x", "The name must have 1 to 63 letters"),
        ("name", "", "This field is required."),
        ("repo_url", "ftp://git.example/a", ""),
        ("config_path", "../langgraph.json", "must be a path inside the repository"),
        ("variables", "no equals sign", "Line 1 is not in the form NAME=value."),
        ("variables", "LANGCHAIN_API_KEY=a", "The platform sets these variables"),
    ],
)
def test_invalid_form_shows_the_error_and_creates_no_deployment(page, base, field, value, text):
    form = {
        "name": "planner",
        "repo_url": "https://git.example/planner.git",
        "config_path": "langgraph.json",
    }

    response = page.post(f"{base}/new", form | {field: value})

    assert response.status_code == 422
    assert text in response.content.decode()
    assert not Deployment.unscoped.exists()


def test_taken_deployment_name_is_a_form_error(page, base, deployment):
    form = {"name": "support", "repo_url": "https://git.example/a.git", "config_path": "a.json"}

    response = page.post(f"{base}/new", form)

    assert response.status_code == 422
    assert b"already has a deployment named support" in response.content


@pytest.mark.parametrize(
    "action",
    [
        "new",
        "{id}/deploy",
        "{id}/stop",
        "{id}/start",
        "{id}/restart",
        "{id}/delete",
        "{id}/settings",
    ],
)
def test_viewer_cannot_change_a_deployment(base, workspace, deployment, action):
    viewer = signed_in(create_workspace_user(workspace, "viewer"))

    response = viewer.post(f"{base}/{action.format(id=deployment.pk)}", {"name": "support"})

    assert response.status_code == 403
    deployment.refresh_from_db()
    assert deployment.deleted_at is None
    assert not deployment.revisions.exists()
    assert b"Deploy</button>" not in viewer.get(f"{base}/{deployment.pk}").content


def test_environment_page_shows_names_without_values(page, base, deployment):
    page.post(f"{base}/{deployment.pk}/environment", {"added": f"TOKEN={SECRET}"})

    content = page.get(f"{base}/{deployment.pk}/environment").content.decode()

    assert "TOKEN" in content
    assert SECRET not in content
    assert deployment.revisions.count() == 1


def test_variables_are_added_changed_and_removed_singly(page, base, deployment):
    address = f"{base}/{deployment.pk}/environment"
    page.post(address, {"added": "A=1\nB=2\nC=3"})

    form = {"added": "D=4\nB=5", "value.A": "", "value.C": "3", "removed": ["A"]}
    response = page.post(address, form, follow=True)

    revision = deployment.revisions.newest_first()[0]
    assert environment.revision_variables(revision) == {"B": "5", "C": "3", "D": "4"}
    assert "Added D. Changed B. Removed A. Unchanged: 1." in response.content.decode()
    assert deployment.revisions.count() == 2


def test_saving_unchanged_variables_builds_no_revision(page, base, deployment):
    address = f"{base}/{deployment.pk}/environment"
    page.post(address, {"added": "A=1"})

    response = page.post(address, {"added": "", "value.A": ""}, follow=True)

    assert b"No variable was changed." in response.content
    assert deployment.revisions.count() == 1
    assert page.post(address, {"removed": ["B"]}).status_code == 422
    page.post(address, {"removed": ["A"]})
    assert environment.variable_names(deployment) == []


def test_settings_create_a_revision_only_if_the_source_changes(page, base, deployment):
    address = f"{base}/{deployment.pk}/settings"
    unchanged = {"branch": "main", "config_path": "langgraph.json"}

    page.post(address, unchanged)
    assert deployment.revisions.count() == 0
    page.post(address, unchanged | {"branch": "next", "tracing": "on"})

    deployment.refresh_from_db()
    assert (deployment.branch, deployment.tracing) == ("next", True)
    assert deployment.revisions.count() == 1


def test_deployment_is_deleted_only_after_its_name_is_typed(page, base, deployment):
    address = f"{base}/{deployment.pk}/delete"

    page.post(address, {"name": "suport"})
    assert page.get(f"{base}/{deployment.pk}").status_code == 200
    page.post(address, {"name": "support"})

    assert page.get(f"{base}/{deployment.pk}").status_code == 404


def test_revision_list_is_paginated(page, base, deployment):
    for number in range(1, 28):
        RevisionFactory(deployment=deployment, number=number, status="SKIPPED")

    first = page.get(f"{base}/{deployment.pk}").content.decode()
    second = page.get(f"{base}/{deployment.pk}?before=3").content.decode()

    assert "?before=3" in first
    assert first.count("data-row") == 25
    assert second.count("data-row") == 2
    assert 'rel="next"' not in second


def test_revision_page_shows_build_log_and_server_log(page, base, deployment):
    revision = RevisionFactory(deployment=deployment, status="BUILDING", commit_sha="ab" * 20)
    StatusChange.unscoped.create(
        workspace=deployment.workspace, revision=revision, status="BUILDING"
    )
    line = LogLineFactory(revision=revision, message="<b>Cloning</b>", level="ERROR")
    LogLineFactory(revision=revision, message="from the host", kind=LogKind.SERVER)
    address = f"{base}/{deployment.pk}/revisions/{revision.pk}"

    content = page.get(address).content.decode()
    server = page.get(f"{address}?log=server").content.decode()

    assert "&lt;b&gt;Cloning&lt;/b&gt;" in content
    assert f'data-after="{line.pk}"' in content
    assert "data-live" in content
    assert "from the host" not in content
    assert "from the host" in server
    assert f'src="{address}/live?log=server"' in server


def test_log_is_downloaded_as_a_text_file(page, base, deployment):
    revision = RevisionFactory(deployment=deployment, number=4)
    LogLineFactory(
        revision=revision, message="Cloning", created_at=datetime(2026, 1, 2, tzinfo=UTC)
    )

    response = page.get(f"{base}/{deployment.pk}/revisions/{revision.pk}/log")

    assert response.content == b"2026-01-02T00:00:00.000000Z INFO    Cloning\n"
    assert response["Content-Disposition"] == 'attachment; filename="support-4-build.log"'


def test_build_can_be_stopped_once(page, base, deployment):
    revision = RevisionFactory(deployment=deployment, status="BUILDING")
    address = f"{base}/{deployment.pk}/revisions/{revision.pk}/stop"

    page.post(address)
    revision.refresh_from_db()
    repeated = page.post(address, follow=True)

    assert revision.status == "INTERRUPTED"
    assert b"The revision has already finished" in repeated.content


def test_htmx_request_for_a_revision_returns_only_its_head(page, base, deployment):
    revision = RevisionFactory(deployment=deployment)
    address = f"{base}/{deployment.pk}/revisions/{revision.pk}"

    response = page.get(address, headers={"HX-Request": "true"})

    fragment = " ".join(response.content.decode().split())
    assert fragment.startswith('<div class="section section-wide" id="live"')
    assert "<live-log" not in fragment


def serve(deployment, **fields):
    """Make a new revision of the deployment serve, with one graph."""
    revision = RevisionFactory(deployment=deployment, status="DEPLOYED", **fields)
    graph = {
        "graph_id": "triage",
        "schemas": {"input_schema": {"properties": {"ticket": {"type": "string"}}}},
        "drawing": {},
    }
    RevisionGraph.unscoped.create(workspace=deployment.workspace, revision=revision, **graph)
    deployment.active_revision = revision
    deployment.save()
    return revision


def test_serving_deployment_shows_calls_with_its_address_and_graph(
    page, base, deployment, settings
):
    settings.BASE_URL = settings.API_BASE_URL = "https://slipway.example"
    before = page.get(f"{base}/{deployment.pk}").content.decode()
    serve(deployment)

    content = html.unescape(page.get(f"{base}/{deployment.pk}").content.decode())

    url = "https://slipway.example/agents/support"
    assert "Call this agent" not in before
    assert f'get_sync_client(url="{url}", api_key="<your key>")' in content
    assert 'input={"ticket": "Hello"}' in content
    assert f'new Client({{ apiUrl: "{url}", apiKey: "<your key>" }})' in content
    assert f"curl --no-buffer {url}/runs/stream" in content
    assert f'href="{url}/docs"' in content


def test_calls_of_an_agent_with_its_own_authentication_name_no_platform_key(page, base, deployment):
    serve(
        deployment,
        config={"auth": {"path": "./auth.py:auth"}, "http": {"disable_meta": True}},
    )

    content = html.unescape(page.get(f"{base}/{deployment.pk}").content.decode())

    assert 'headers={"Authorization": "Bearer <your token>"}' in content
    assert "api_key=" not in content
    assert "/docs" not in content.split("Call this agent")[1]


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"properties": {"messages": {"type": "array"}, "a": {}}}, "message"),
        ({"properties": {"a": {"type": "integer"}, "b": {}}, "required": ["a"]}, {"a": 1}),
        ({"properties": {"a": {"enum": ["x", "y"]}}}, {"a": "x"}),
        ({"properties": {"a": {"type": ["string", "null"]}}}, {"a": None}),
        ({"properties": {"a": {"type": "string", "default": "b"}}}, {"a": "b"}),
        ({"type": "string"}, {}),
    ],
)
def test_example_input_fits_the_schema(schema, expected):
    message = {"messages": [{"role": "user", "content": "Hello"}]}

    assert example_input(schema) == (message if expected == "message" else expected)


def test_logs_tab_shows_the_server_log_of_the_serving_revision(page, base, deployment):
    address = f"{base}/{deployment.pk}/logs"
    assert b"No server log" in page.get(address).content
    revision = serve(deployment)
    LogLineFactory(revision=revision, message="from the host", kind=LogKind.SERVER)
    LogLineFactory(revision=revision, message="from the build")

    content = page.get(address).content.decode()

    assert "from the host" in content
    assert "from the build" not in content
    assert f'src="{base}/{deployment.pk}/revisions/{revision.pk}/live?log=server"' in content


def test_metrics_tab_leads_to_the_monitoring_of_the_deployments_project(
    page, base, workspace, deployment
):
    project = ProjectFactory(workspace=workspace, name="support")

    content = page.get(f"{base}/{deployment.pk}").content.decode()

    assert f'href="/o/{workspace.pk}/projects/p/{project.pk}/monitoring">Metrics' in content


def test_deployment_page_shows_the_newest_traces_and_the_figures_of_a_day(
    page, base, workspace, deployment
):
    serve(deployment)
    now = datetime.now(UTC)
    for number in range(NEWEST_TRACES + 1):
        inputs = {"messages": [{"role": "user", "content": f"question {number}"}]}
        start = now - timedelta(hours=20 * number + 1)
        error = "ValueError: no" if number == 1 else None
        stored_run(workspace, session_name=deployment.name, start=start, inputs=inputs, error=error)

    response = page.get(f"{base}/{deployment.pk}")

    assert re.findall(r">(question \d+)</a>", response.text) == [
        f"question {number}" for number in range(NEWEST_TRACES)
    ]
    stats = response.context["traces"].stats
    assert (stats["trace_count"], stats["error_rate"]) == (2, 0.5)


def test_newest_failed_revision_is_retried(page, base, deployment):
    older = RevisionFactory(deployment=deployment, number=1, status="BUILD_FAILED")
    newest = RevisionFactory(deployment=deployment, number=2, status="BUILD_FAILED")
    deploy = f"{base}/{deployment.pk}/deploy"

    def read(revision):
        return page.get(f"{base}/{deployment.pk}/revisions/{revision.pk}").content.decode()

    assert deploy not in read(older)
    assert f'action="{deploy}"' in read(newest)
    page.post(deploy)
    assert deployment.revisions.newest_first()[0].number == 3
    assert deploy not in read(newest)


def test_failed_deployment_of_a_build_is_retried_from_the_build(page, base, deployment):
    revision = RevisionFactory(
        deployment=deployment, status="DEPLOY_FAILED", attempt=1, built_attempt=1
    )
    address = f"{base}/{deployment.pk}/revisions/{revision.pk}"

    assert f'action="{address}/redeploy"' in page.get(address).content.decode()
    page.post(f"{address}/redeploy")

    revision.refresh_from_db()
    assert revision.status == "AWAITING_DEPLOY"


START = datetime(2026, 1, 2, tzinfo=UTC)


def seconds_after_start(second):
    return START + timedelta(seconds=second)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ([], ["ahead", "ahead", "ahead", "ahead"]),
        ([("CREATING", 0), ("QUEUED", 1)], ["now 10", "ahead", "ahead", "ahead"]),
        ([("QUEUED", 0), ("BUILDING", 2)], ["done 2", "now 8", "ahead", "ahead"]),
        ([("BUILDING", 2), ("BUILD_FAILED", 5)], ["done 0", "failed 3", "ahead", "ahead"]),
        ([("QUEUED", 0), ("SKIPPED", 4)], ["stopped 4", "ahead", "ahead", "ahead"]),
        (
            [("QUEUED", 0), ("BUILDING", 1), ("AWAITING_DEPLOY", 4), ("DEPLOYED", 7)],
            ["done 1", "done 3", "done 3", "done"],
        ),
        (
            [("BUILDING", 0), ("DEPLOYING", 2), ("DEPLOYED", 3), ("AWAITING_DEPLOY", 6)],
            ["done 0", "done 2", "now 4", "ahead"],
        ),
    ],
)  # fmt: skip
def test_stages_of_a_revision_derive_from_its_status_changes(changes, expected):
    stages = build_stages(
        [(status, seconds_after_start(second)) for status, second in changes],
        seconds_after_start(10),
    )

    def describe(stage: Stage) -> str:
        duration = "" if stage.duration is None else f" {stage.duration.total_seconds():.0f}"
        return stage.state + duration

    assert [describe(stage) for stage in stages] == expected


def test_deployment_is_stopped_started_and_restarted_on_its_page(page, base, deployment):
    address = f"{base}/{deployment.pk}"
    assert "/stop" not in page.get(address).content.decode()
    serve(deployment)
    content = page.get(address).content.decode()
    assert f"{address}/stop" in content
    assert f"{address}/restart" in content

    stopped = page.post(f"{address}/stop", follow=True).content.decode()

    assert "support was stopped." in stopped
    assert "This agent is stopped." in stopped
    assert f"{address}/start" in stopped
    assert f"{address}/restart" not in stopped
    assert "serving</span>" not in stopped
    assert "Stopped</span>" in page.get(base).content.decode()

    refused = page.post(f"{address}/restart", follow=True).content.decode()
    assert "The deployment is stopped. Start it first." in refused

    started = page.post(f"{address}/start", follow=True).content.decode()
    assert "support was started." in started
    assert "Serving</span>" in started
    assert "support restarts." in page.post(f"{address}/restart", follow=True).content.decode()
