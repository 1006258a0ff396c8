import json

import pytest
from django.test import Client

from apps.api_keys import services as api_keys
from apps.deployments.models import Deployment, Revision
from apps.deployments.statuses import RevisionStatus as S
from apps.tracing.models import Project
from apps.tracing.services import delete_project
from tests.factories.api_keys import key_for
from tests.factories.deployments import DeploymentFactory, LogLineFactory, RevisionFactory
from tests.factories.organizations import WorkspaceFactory

pytestmark = pytest.mark.django_db

URL = "https://git.example/acme/agent.git"
BODY = {
    "name": "agent",
    "source": "github",
    "source_config": {"repo_url": URL, "deployment_type": "dev_zero"},
    "source_revision_config": {"repo_ref": "main", "langgraph_config_path": "langgraph.json"},
    "secrets": [{"name": "MOOD", "value": "good"}],
}


@pytest.fixture(autouse=True)
def clear_cache():
    yield
    api_keys.clear_cache()


@pytest.fixture
def call(workspace):
    return make_call(key_for(workspace, "deploy"))


@pytest.fixture
def outsider_call():
    return make_call(key_for(WorkspaceFactory(), "admin"))


def make_call(key):
    def call(method, path, body=None, prefix=""):
        response = getattr(Client(), method)(
            prefix + path,
            **({} if body is None else {"data": json.dumps(body)}),
            **({"content_type": "application/json"} if method != "get" else {}),
            headers={"X-Api-Key": key} if key else {},
        )
        return response.status_code, json.loads(response.content or b"null")

    return call


def create(call, **changes):
    status, created = call("post", "/v2/deployments", {**BODY, **changes})
    assert status == 201, created
    return created


def test_anonymous_and_unprivileged_callers_are_rejected(workspace):
    assert make_call(None)("get", "/v2/deployments")[0] == 401
    assert make_call(key_for(workspace, "ingest"))("get", "/v2/deployments")[0] == 403
    assert make_call(key_for(workspace, "read"))("post", "/v2/deployments", BODY)[0] == 403
    assert Deployment.unscoped.count() == 0


def test_outsider_gets_404(call, outsider_call):
    created = create(call)
    path = f"/v2/deployments/{created['id']}"
    revision = f"{path}/revisions/{created['latest_revision_id']}"

    answers = [
        outsider_call("get", path),
        outsider_call("patch", path, {"display_name": "x"}),
        outsider_call("delete", path),
        outsider_call("delete", f"/v2/deployments?deployment_ids={created['id']}"),
        outsider_call("get", f"{path}/revisions"),
        outsider_call("post", f"{path}/revisions", {}),
        outsider_call("get", revision),
        outsider_call("post", f"{revision}/redeploy"),
        outsider_call("post", f"{revision}/interrupt"),
        outsider_call("post", f"/v1/projects/{created['id']}/deploy_logs", {}),
        outsider_call(
            "post", f"/v1{revision[3:].replace('deployments', 'projects')}/build_logs", {}
        ),
    ]

    assert [status for status, _ in answers] == [404] * len(answers)
    assert {body["detail"] for _, body in answers} == {"Not found."}
    assert outsider_call("get", "/v2/deployments")[1] == {"resources": [], "offset": 0}
    assert Revision.unscoped.get().status == "AWAITING_BUILD"


@pytest.mark.parametrize("prefix", ["", "/api-host", "/api/v1"])
def test_create_response_has_the_fields_of_the_clients(call, workspace, prefix):
    status, created = call("post", "/v2/deployments", BODY, prefix=prefix)

    revision = Revision.unscoped.get()
    assert status == 201
    assert created["tenant_id"] == str(workspace.pk)
    assert (created["name"], created["source"]) == ("agent", "github")
    assert created["status"] == "AWAITING_DATABASE"
    assert created["latest_revision_id"] == str(revision.pk)
    assert created["active_revision_id"] is None
    assert created["secrets"] is None
    assert created["source_config"]["repo_url"] == URL
    assert created["source_config"]["deployment_type"] == "dev_zero"
    assert created["source_config"]["custom_url"] is None
    assert created["source_revision_config"]["repo_ref"] == "main"


def test_served_deployment_has_its_url(call, settings):
    settings.BASE_URL = settings.API_BASE_URL = "https://slipway.example"
    created = create(call)
    Deployment.unscoped.update(active_revision=created["latest_revision_id"], status="READY")

    _, served = call("get", f"/v2/deployments/{created['id']}")

    assert served["source_config"]["custom_url"] == "https://slipway.example/agents/agent"
    # A client sends back what it read, with its changes.
    change = {"source_config": served["source_config"]}
    assert call("patch", f"/v2/deployments/{created['id']}", change)[0] == 200
    assert served["active_revision_id"] == created["latest_revision_id"]


@pytest.mark.parametrize(
    ("changes", "status", "message"),
    [
        ({"source": "internal_docker"}, 400, "source github with source_config.repo_url"),
        ({"source": "internal_source"}, 400, "Uploads of source archives are not supported yet"),
        ({"source": "external_docker"}, 400, "runs no images"),
        ({"source": "cvs"}, 400, "'cvs' is unknown"),
        ({"name": "a b"}, 422, "The name must have 1 to 63 letters"),
        ({"name": None}, 422, "name: "),
        ({"agent": {"agent_id": "x"}}, 400, "name is required"),
        ({"source_config": {}}, 422, "The Git address is required."),
        ({"source_config": {"repo_url": "nonsense"}}, 422, "is not a Git address"),
        ({"source_config": {"repo_url": URL, "deployment_type": "huge"}}, 422, "deployment_type"),
        ({"source_config": {"repo_url": URL, "build_command": "make"}}, 400, "build_command"),
        ({"source_config": {"repo_url": URL, "build_on_push": True}}, 400, "build_on_push"),
        ({"source_config": {"repo_url": URL, "resource_spec": {"cpu": 1}}}, 400, "resource_spec"),
        ({"source_config": {"repo_url": URL, "custom_url": "https://x"}}, 400, "custom_url"),
        ({"source_config": {"repo_url": URL, "listener_id": "x"}}, 400, "listener_id"),
        ({"source_config": {"repo_url": URL, "listener_config": {"a": 1}}}, 400, "listener_config"),
        ({"source_config": {"repo_url": URL, "template_id": "x"}}, 400, "template_id"),
        ({"source_config": {"repo_url": URL, "integration_id": "x"}}, 400, "integration_id"),
        ({"source_config": {"repo_url": URL, "repo_branch": "next"}}, 400, "repo_branch is read"),
        ({"build_on_push": True}, 422, "build_on_push: The field is unknown here; it belongs in s"),
        ({"repo_ref": "main"}, 422, "belongs in source_revision_config"),
        ({"source_config": {"repo_url": URL, "repo_uri": "x"}}, 422, "source_config.repo_uri: "),
        ({"source_revision_config": {"ref": "x"}}, 422, "source_revision_config.ref: "),
        ({"source_revision_config": {"repo_commit_sha": "0" * 40}}, 400, "repo_commit_sha is read"),
        ({"secrets": [{"name": "A", "value": "x", "from": "b"}]}, 422, "from: "),
        ({"secrets": [{"name": "REDIS_URI", "value": "x"}]}, 400, "REDIS_URI"),
        ({"secrets": [{"name": "A B", "value": "x"}]}, 422, "is not a valid variable name"),
        ({"secrets": "x"}, 422, "secrets"),
        ({"secret_references": [{"name": "x"}]}, 400, "send secrets instead"),
        ({"source_revision_config": {"repo_ref": "--x"}}, 422, "is not a valid branch"),
        (
            {"source_revision_config": {"langgraph_config_path": "../x"}},
            422,
            "must be a path inside",
        ),
        ({"source_revision_config": {"image_uri": "x@sha256:0"}}, 400, "runs no images"),
    ],
)
def test_invalid_input_is_rejected_with_a_message(call, changes, status, message):
    response_status, body = call("post", "/v2/deployments", {**BODY, **changes})

    assert response_status == status
    assert isinstance(body["detail"], str)
    assert message in body["detail"]
    assert Deployment.unscoped.count() == 0


@pytest.mark.parametrize(
    ("change", "status", "message"),
    [
        ({"build_on_push": True}, 422, "build_on_push: The field is unknown here"),
        ({"resource_spec": {"cpu": 1}}, 422, "it belongs in source_config"),
        ({"integration_id": "x"}, 422, "integration_id: The field is unknown here"),
        ({"name": "other"}, 422, "name: The field is unknown."),
        ({"source": "internal_docker"}, 422, "source: The field is unknown."),
        ({"source_config": {"build_on_push": True}}, 400, "build_on_push is not supported"),
        ({"source_config": {"resource_spec": {"cpu": 1}}}, 400, "resource_spec is not supported"),
        ({"source_config": {"integration_id": "x"}}, 400, "integration_id is not supported"),
        ({"source_config": {"repo_branch": "next"}}, 400, "repo_branch is read-only"),
        ({"source_config": {"deployment_type": "prod"}}, 400, "deployment_type cannot be changed"),
        ({"source_revision_config": {"repo_commit_sha": "0" * 40}}, 400, "is read-only"),
    ],
)
@pytest.mark.parametrize("route", ["patch ", "post /revisions"])
def test_changes_without_an_effect_are_rejected(call, route, change, status, message):
    created = create(call)
    method, _, path = route.partition(" ")

    answer = call(method, f"/v2/deployments/{created['id']}{path}", change)

    assert answer[0] == status
    assert message in answer[1]["detail"]
    assert Revision.unscoped.count() == 1
    assert call("get", f"/v2/deployments/{created['id']}")[1] == created


def test_read_only_fields_may_be_sent_back(call):
    created = create(call)
    Revision.unscoped.update(commit_sha="a" * 40)
    path = f"/v2/deployments/{created['id']}"
    _, read = call("get", path)

    status, _ = call(
        "patch",
        path,
        {
            "source_config": read["source_config"],
            "source_revision_config": {**read["source_revision_config"], "repo_ref": "next"},
            "unheard_of": None,
        },
    )

    assert read["source_config"]["repo_branch"] == "main"
    assert read["source_revision_config"]["repo_commit_sha"] == "a" * 40
    assert status == 200
    assert Revision.unscoped.order_by("-number").first().ref == "next"


def test_unknown_filters_are_rejected(call):
    created = create(call)
    path = f"/v2/deployments/{created['id']}"

    answers = [
        call("get", "/v2/deployments?image_version=1"),
        call("get", "/v2/deployments?tag_value_ids=x"),
        call("get", f"{path}/revisions?state=DEPLOYED"),
        call("delete", f"{path}?keep_project=1"),
        call("post", f"/v1/projects/{created['id']}/deploy_logs", {"severity": "ERROR"}),
    ]

    assert [status for status, _ in answers] == [422] * len(answers)
    assert all("The field is unknown." in body["detail"] for _, body in answers)
    assert call("get", path)[0] == 200


def test_duplicate_name_is_rejected(call):
    create(call)

    assert call("post", "/v2/deployments", BODY)[0] == 409
    assert Deployment.unscoped.count() == 1


def test_pages_end_where_the_client_stops(call, workspace):
    for number in range(5):
        DeploymentFactory(workspace=workspace, name=f"a{number}", slug=f"a{number}")

    pages = [call("get", f"/v2/deployments?limit=2&offset={o}")[1] for o in (0, 2, 4, 6)]

    assert [[row["name"] for row in page["resources"]] for page in pages] == [
        ["a4", "a3"],
        ["a2", "a1"],
        ["a0"],
        [],
    ]
    assert [page["offset"] for page in pages] == [2, 4, 5, 6]
    assert call("get", "/v2/deployments?limit=101")[0] == 422


def test_deployments_are_filtered_by_name_and_status(call, workspace):
    for name in ("shop", "shop-test", "desk"):
        DeploymentFactory(workspace=workspace, name=name, slug=name)

    def list_names(query):
        return sorted(r["name"] for r in call("get", f"/v2/deployments?{query}")[1]["resources"])

    assert list_names("name=shop&name_contains=shop") == ["shop", "shop-test"]
    assert list_names("name=shop") == ["shop"]
    assert list_names("name_contains=") == ["desk", "shop", "shop-test"]
    assert list_names("status=READY") == []
    assert call("get", "/v2/deployments?agent_id=x")[0] == 400


def test_list_has_a_constant_number_of_queries(call, workspace, django_assert_num_queries):
    DeploymentFactory(workspace=workspace)
    call("get", "/v2/deployments")
    with django_assert_num_queries(1):
        call("get", "/v2/deployments")

    for _ in range(5):
        RevisionFactory(deployment__workspace=workspace)
    with django_assert_num_queries(1):
        assert len(call("get", "/v2/deployments")[1]["resources"]) == 6


@pytest.mark.parametrize(
    ("body", "revisions"),
    [
        ({"display_name": "Ann"}, 1),
        ({"source_config": {"build_on_push": False, "resource_spec": None}}, 1),
        ({"source_config": {"repo_url": URL + "2"}}, 1),
        ({"secrets": []}, 1),
        ({"secrets": None, "source_revision_config": {}}, 1),
        ({"secrets": [{"name": "A", "value": "1"}]}, 2),
        ({"source_revision_config": {"repo_ref": "main"}}, 2),
    ],
)
def test_only_changes_of_the_build_create_a_revision(call, body, revisions):
    created = create(call)

    status, patched = call("patch", f"/v2/deployments/{created['id']}", body)

    newest = Revision.unscoped.order_by("-number").first()
    assert (status, Revision.unscoped.count()) == (200, revisions)
    assert patched["tenant_id"] == created["tenant_id"]
    assert patched["latest_revision_id"] == str(newest.pk)


def test_deployment_type_cannot_be_changed(call):
    created = create(call)
    path = f"/v2/deployments/{created['id']}"

    same = call("patch", path, {"source_config": {"deployment_type": "dev_zero"}})
    other = call("patch", path, {"source_config": {"deployment_type": "prod"}})

    assert (same[0], other[0]) == (200, 400)


def test_revisions_come_newest_first(call):
    created = create(call)
    path = f"/v2/deployments/{created['id']}/revisions"

    status, second = call("post", path, {"source_revision_config": {"repo_ref": "next"}})
    _, page = call("get", f"{path}?limit=1")

    assert status == 201
    assert second["source_revision_config"]["repo_ref"] == "next"
    assert [row["id"] for row in page["resources"]] == [second["id"]]
    assert call("get", f"{path}/{second['id']}")[1]["status"] == "AWAITING_BUILD"
    _, skipped = call("get", f"{path}?status=SKIPPED,DEPLOYED")
    assert [row["id"] for row in skipped["resources"]] == [created["latest_revision_id"]]


def test_a_revision_of_another_deployment_is_not_found(call):
    created, other = create(call), create(call, name="other")

    status, _ = call(
        "get", f"/v2/deployments/{created['id']}/revisions/{other['latest_revision_id']}"
    )

    assert status == 404


def test_redeploy_returns_the_deployment(call):
    created = create(call)
    Revision.unscoped.update(status=S.DEPLOYED, built_attempt=1)
    path = f"/v2/deployments/{created['id']}"

    status, answer = call("post", f"{path}/revisions/{created['latest_revision_id']}/redeploy")

    assert (status, answer["id"]) == (200, created["id"])
    assert Revision.unscoped.get().status == "AWAITING_DEPLOY"


def test_a_pending_revision_is_interrupted_once(call):
    created = create(call)
    path = f"/v2/deployments/{created['id']}/revisions/{created['latest_revision_id']}/interrupt"

    assert call("post", path)[1]["status"] == "INTERRUPTED"
    assert call("post", path)[0] == 409


def test_a_deleted_deployment_is_not_found(call):
    created = create(call)
    path = f"/v2/deployments/{created['id']}"

    assert call("delete", path) == (204, None)

    assert call("get", path)[0] == 404
    assert call("delete", path)[0] == 404
    assert call("get", "/v2/deployments")[1]["resources"] == []


def test_deleting_many_deployments_is_all_or_nothing(call, outsider_call):
    own_ids = [create(call, name=name)["id"] for name in ("a", "b")]
    foreign_id = create(outsider_call)["id"]

    def query(ids):
        return "/v2/deployments?" + "&".join(
            f"deployment_ids={deployment_id}" for deployment_id in ids
        )

    assert call("delete", query([*own_ids, foreign_id]))[0] == 404
    assert Deployment.unscoped.filter(deleted_at=None).count() == 3
    assert call("delete", query(own_ids))[0] == 200
    assert Deployment.unscoped.filter(deleted_at=None).count() == 1
    assert call("delete", "/v2/deployments")[0] == 422


@pytest.fixture
def log_paths(call):
    created = create(call)
    revision = Revision.unscoped.get()
    for number in range(5):
        LogLineFactory(
            revision=revision, message=f"line {number}", level="ERROR" if number == 3 else "INFO"
        )
    LogLineFactory(revision=revision, kind="deploy", message="serving")
    return f"/v1/projects/{created['id']}", f"/v1/projects/{created['id']}/revisions/{revision.pk}"


def test_paging_the_build_log_returns_each_line_once(call, log_paths):
    path = f"{log_paths[1]}/build_logs"
    messages, offset = [], None
    for _ in range(4):
        _, page = call("post", path, {"order": "asc", "limit": 2, "offset": offset})
        messages += [line["message"] for line in page["logs"]]
        offset = page["next_offset"]
        assert isinstance(offset, str)

    assert messages == [f"line {number}" for number in range(5)]


def test_descending_log_starts_with_the_newest_lines(call, log_paths):
    _, page = call("post", f"{log_paths[1]}/build_logs", {"order": "desc", "limit": 2})

    assert [line["message"] for line in page["logs"]] == ["line 4", "line 3"]
    assert {type(line["timestamp"]) for line in page["logs"]} == {int}
    assert len({line["id"] for line in page["logs"]}) == 2


def test_log_lines_are_filtered(call, log_paths):
    def list_messages(query):
        return [
            line["message"] for line in call("post", f"{log_paths[1]}/build_logs", query)[1]["logs"]
        ]

    assert list_messages({"level": "WARNING"}) == ["line 3"]
    assert list_messages({"query": "LINE 2"}) == ["line 2"]
    assert list_messages({"start_time": "2999-01-01T00:00:00Z"}) == []
    assert call("post", f"{log_paths[1]}/build_logs", {"offset": "x"})[0] == 422


def test_server_log_is_separate_from_the_build_log(call, log_paths):
    _, of_revision = call("post", f"{log_paths[1]}/deploy_logs", {})
    _, of_deployment = call("post", f"{log_paths[0]}/deploy_logs", {})

    assert [line["message"] for line in of_revision["logs"]] == ["serving"]
    assert of_deployment["logs"] == of_revision["logs"]


def test_uploads_and_images_are_rejected_with_advice(call):
    created = create(call)
    path = f"/v2/deployments/{created['id']}"

    upload, push = call("post", f"{path}/upload-url"), call("post", f"{path}/push-token")

    assert (upload[0], push[0]) == (400, 400)
    assert "not supported yet" in upload[1]["detail"]
    assert "source github with source_config.repo_url" in push[1]["detail"]
    assert "--remote" not in push[1]["detail"]


def test_listeners_and_integrations_are_empty(call):
    assert call("get", "/v2/listeners") == (200, {"resources": [], "offset": 0})
    assert call("get", "/v1/integrations/github/install") == (200, [])


def test_deployment_is_stopped_restarted_and_started(call, outsider_call):
    created = create(call)
    path = f"/v2/deployments/{created['id']}"

    def post(action, make_call=call):
        status, body = make_call("post", f"{path}/{action}")
        return status, body.get("status") or body.get("code")

    assert post("stop", outsider_call) == (404, "not_found")
    assert post("stop") == (409, "deployment_not_deployed")
    assert post("restart") == (409, "deployment_not_deployed")

    Deployment.unscoped.update(active_revision=created["latest_revision_id"], status="READY")
    assert post("restart") == (200, "READY")
    assert post("stop") == (200, "UNUSED")
    assert post("stop") == (200, "UNUSED")
    assert post("restart") == (409, "deployment_stopped")
    assert call("get", path)[1]["active_revision_id"] == created["latest_revision_id"]
    assert post("start") == (200, "READY")
    assert post("start") == (200, "READY")
    assert Deployment.unscoped.get().host_generation == 3


def find_projects(workspace):
    return set(Project.objects.for_workspace(workspace).present().values_list("name", flat=True))


def test_tracing_projects_are_deleted_with_their_deployments_on_request(workspace):
    call = make_call(key_for(workspace, "admin"))
    first, second, kept = [create(call, name=name)["id"] for name in ("a", "b", "c")]
    project = Project.objects.for_workspace(workspace).get(name="a")

    invalid = call("delete", f"/v2/deployments/{first}?delete_tracing_project=perhaps")
    single = call("delete", f"/v2/deployments/{first}?delete_tracing_project=true")
    query = f"deployment_ids={second}&delete_tracing_project=true"
    several = call("delete", f"/v2/deployments?{query}")
    without = call("delete", f"/v2/deployments/{kept}?delete_tracing_project=false")

    assert (invalid[0], single[0], several[0], without[0]) == (422, 204, 200, 204)
    assert find_projects(workspace) & {"a", "b", "c"} == {"c"}
    project.refresh_from_db()
    assert project.deleted_at is not None


def test_tracing_project_of_a_deleted_deployment_may_be_gone_already(workspace):
    call = make_call(key_for(workspace, "admin"))
    created = create(call)
    delete_project(project=Project.objects.for_workspace(workspace).get(name="agent"))

    path = f"/v2/deployments/{created['id']}?delete_tracing_project=true"

    assert call("delete", path) == (204, None)


def test_deleting_the_tracing_project_needs_its_permission(call, workspace):
    created = create(call)
    path = f"/v2/deployments/{created['id']}?delete_tracing_project=true"
    many = f"/v2/deployments?deployment_ids={created['id']}&delete_tracing_project=true"

    assert (call("delete", path)[0], call("delete", many)[0]) == (403, 403)
    assert Deployment.unscoped.filter(deleted_at=None).count() == 1
    assert "agent" in find_projects(workspace)
