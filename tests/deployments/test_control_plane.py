import json

import pytest
from django.test import Client

from apps.api_keys import services as api_keys
from apps.deployments.models import Deployment, Revision
from apps.deployments.statuses import RevisionStatus as S
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
def nothing_cached():
    yield
    api_keys.clear_cache()


@pytest.fixture
def workspace():
    return WorkspaceFactory()


@pytest.fixture
def call(workspace):
    return caller(key_for(workspace, "deploy"))


@pytest.fixture
def stranger():
    return caller(key_for(WorkspaceFactory(), "admin"))


def caller(key):
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
    status, made = call("post", "/v2/deployments", {**BODY, **changes})
    assert status == 201, made
    return made


def test_anonymous_and_unprivileged_callers_are_rejected(workspace):
    assert caller(None)("get", "/v2/deployments")[0] == 401
    assert caller(key_for(workspace, "ingest"))("get", "/v2/deployments")[0] == 403
    assert caller(key_for(workspace, "read"))("post", "/v2/deployments", BODY)[0] == 403
    assert Deployment.unscoped.count() == 0


def test_outsider_gets_404(call, stranger):
    made = create(call)
    place = f"/v2/deployments/{made['id']}"
    revision = f"{place}/revisions/{made['latest_revision_id']}"

    answers = [
        stranger("get", place),
        stranger("patch", place, {"display_name": "x"}),
        stranger("delete", place),
        stranger("delete", f"/v2/deployments?deployment_ids={made['id']}"),
        stranger("get", f"{place}/revisions"),
        stranger("post", f"{place}/revisions", {}),
        stranger("get", revision),
        stranger("post", f"{revision}/redeploy"),
        stranger("post", f"{revision}/interrupt"),
        stranger("post", f"/v1/projects/{made['id']}/deploy_logs", {}),
        stranger("post", f"/v1{revision[3:].replace('deployments', 'projects')}/build_logs", {}),
    ]

    assert [status for status, _ in answers] == [404] * len(answers)
    assert {body["detail"] for _, body in answers} == {"Not found."}
    assert stranger("get", "/v2/deployments")[1] == {"resources": [], "offset": 0}
    assert Revision.unscoped.get().status == "AWAITING_BUILD"


@pytest.mark.parametrize("prefix", ["", "/api-host", "/api/v1"])
def test_create_response_has_the_fields_of_the_clients(call, workspace, prefix):
    status, made = call("post", "/v2/deployments", BODY, prefix=prefix)

    revision = Revision.unscoped.get()
    assert status == 201
    assert made["tenant_id"] == str(workspace.pk)
    assert (made["name"], made["source"]) == ("agent", "github")
    assert made["status"] == "AWAITING_DATABASE"
    assert made["latest_revision_id"] == str(revision.pk)
    assert made["active_revision_id"] is None
    assert made["secrets"] is None
    assert made["source_config"]["repo_url"] == URL
    assert made["source_config"]["deployment_type"] == "dev_zero"
    assert made["source_config"]["custom_url"] is None
    assert made["source_revision_config"]["repo_ref"] == "main"


def test_served_deployment_has_its_url(call, settings):
    settings.BASE_URL = "https://slipway.example"
    made = create(call)
    Deployment.unscoped.update(active_revision=made["latest_revision_id"], status="READY")

    _, found = call("get", f"/v2/deployments/{made['id']}")

    assert found["source_config"]["custom_url"] == "https://slipway.example/agents/agent"
    assert found["active_revision_id"] == made["latest_revision_id"]


@pytest.mark.parametrize(
    ("changes", "status", "says"),
    [
        ({"source": "internal_docker"}, 400, "add --remote"),
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
def test_invalid_input_is_rejected_with_a_message(call, changes, status, says):
    answered, body = call("post", "/v2/deployments", {**BODY, **changes})

    assert answered == status
    assert isinstance(body["detail"], str)
    assert says in body["detail"]
    assert Deployment.unscoped.count() == 0


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


def test_filters(call, workspace):
    for name in ("shop", "shop-test", "desk"):
        DeploymentFactory(workspace=workspace, name=name, slug=name)

    def names(query):
        return sorted(r["name"] for r in call("get", f"/v2/deployments?{query}")[1]["resources"])

    assert names("name=shop&name_contains=shop") == ["shop", "shop-test"]
    assert names("name=shop") == ["shop"]
    assert names("name_contains=") == ["desk", "shop", "shop-test"]
    assert names("status=READY") == []
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
        ({"source_config": {"build_on_push": True}}, 1),
        ({"source_config": {"repo_url": URL + "2"}}, 1),
        ({"secrets": []}, 1),
        ({"secrets": None, "source_revision_config": {}}, 1),
        ({"secrets": [{"name": "A", "value": "1"}]}, 2),
        ({"source_revision_config": {"repo_ref": "main"}}, 2),
        ({"source_config": {"resource_spec": {"cpu": 1}}}, 2),
    ],
)
def test_changes_that_create_a_revision(call, body, revisions):
    made = create(call)

    status, patched = call("patch", f"/v2/deployments/{made['id']}", body)

    newest = Revision.unscoped.order_by("-number").first()
    assert (status, Revision.unscoped.count()) == (200, revisions)
    assert patched["tenant_id"] == made["tenant_id"]
    assert patched["latest_revision_id"] == str(newest.pk)


def test_deployment_type_cannot_be_changed(call):
    made = create(call)
    place = f"/v2/deployments/{made['id']}"

    same = call("patch", place, {"source_config": {"deployment_type": "dev_zero"}})
    other = call("patch", place, {"source_config": {"deployment_type": "prod"}})

    assert (same[0], other[0]) == (200, 400)


def test_revisions_come_newest_first(call):
    made = create(call)
    place = f"/v2/deployments/{made['id']}/revisions"

    status, second = call("post", place, {"source_revision_config": {"repo_ref": "next"}})
    _, page = call("get", f"{place}?limit=1")

    assert status == 201
    assert second["source_revision_config"]["repo_ref"] == "next"
    assert [row["id"] for row in page["resources"]] == [second["id"]]
    assert call("get", f"{place}/{second['id']}")[1]["status"] == "AWAITING_BUILD"
    _, skipped = call("get", f"{place}?status=SKIPPED,DEPLOYED")
    assert [row["id"] for row in skipped["resources"]] == [made["latest_revision_id"]]


def test_a_revision_of_another_deployment_is_not_found(call):
    made, other = create(call), create(call, name="other")

    status, _ = call("get", f"/v2/deployments/{made['id']}/revisions/{other['latest_revision_id']}")

    assert status == 404


def test_redeploying_answers_the_deployment(call):
    made = create(call)
    Revision.unscoped.update(status=S.DEPLOYED, built_attempt=1)
    place = f"/v2/deployments/{made['id']}"

    status, answer = call("post", f"{place}/revisions/{made['latest_revision_id']}/redeploy")

    assert (status, answer["id"]) == (200, made["id"])
    assert Revision.unscoped.get().status == "AWAITING_DEPLOY"


def test_interrupting(call):
    made = create(call)
    place = f"/v2/deployments/{made['id']}/revisions/{made['latest_revision_id']}/interrupt"

    assert call("post", place)[1]["status"] == "INTERRUPTED"
    assert call("post", place)[0] == 409


def test_deleting_one(call):
    made = create(call)
    place = f"/v2/deployments/{made['id']}"

    assert call("delete", place) == (204, None)

    assert call("get", place)[0] == 404
    assert call("delete", place)[0] == 404
    assert call("get", "/v2/deployments")[1]["resources"] == []


def test_deleting_many_is_all_or_nothing(call, stranger):
    mine = [create(call, name=name)["id"] for name in ("a", "b")]
    foreign = create(stranger)["id"]

    def query(ids):
        return "/v2/deployments?" + "&".join(f"deployment_ids={one}" for one in ids)

    assert call("delete", query([*mine, foreign]))[0] == 404
    assert Deployment.unscoped.filter(deleted_at=None).count() == 3
    assert call("delete", query(mine))[0] == 200
    assert Deployment.unscoped.filter(deleted_at=None).count() == 1
    assert call("delete", "/v2/deployments")[0] == 422


@pytest.fixture
def lines(call):
    made = create(call)
    revision = Revision.unscoped.get()
    for number in range(5):
        LogLineFactory(
            revision=revision, message=f"line {number}", level="ERROR" if number == 3 else "INFO"
        )
    LogLineFactory(revision=revision, kind="deploy", message="serving")
    return f"/v1/projects/{made['id']}", f"/v1/projects/{made['id']}/revisions/{revision.pk}"


def test_paging_the_build_log_returns_each_line_once(call, lines):
    place = f"{lines[1]}/build_logs"
    seen, offset = [], None
    for _ in range(4):
        _, page = call("post", place, {"order": "asc", "limit": 2, "offset": offset})
        seen += [line["message"] for line in page["logs"]]
        offset = page["next_offset"]
        assert isinstance(offset, str)

    assert seen == [f"line {number}" for number in range(5)]


def test_descending_log_starts_with_the_newest_lines(call, lines):
    _, page = call("post", f"{lines[1]}/build_logs", {"order": "desc", "limit": 2})

    assert [line["message"] for line in page["logs"]] == ["line 4", "line 3"]
    assert {type(line["timestamp"]) for line in page["logs"]} == {int}
    assert len({line["id"] for line in page["logs"]}) == 2


def test_lines_are_filtered(call, lines):
    def messages(query):
        return [
            line["message"] for line in call("post", f"{lines[1]}/build_logs", query)[1]["logs"]
        ]

    assert messages({"level": "WARNING"}) == ["line 3"]
    assert messages({"query": "LINE 2"}) == ["line 2"]
    assert messages({"start_time": "2999-01-01T00:00:00Z"}) == []
    assert call("post", f"{lines[1]}/build_logs", {"offset": "x"})[0] == 422


def test_server_log_is_separate_from_the_build_log(call, lines):
    _, of_revision = call("post", f"{lines[1]}/deploy_logs", {})
    _, of_deployment = call("post", f"{lines[0]}/deploy_logs", {})

    assert [line["message"] for line in of_revision["logs"]] == ["serving"]
    assert of_deployment["logs"] == of_revision["logs"]


def test_uploads_and_images_are_rejected_with_advice(call):
    made = create(call)
    place = f"/v2/deployments/{made['id']}"

    upload, push = call("post", f"{place}/upload-url"), call("post", f"{place}/push-token")

    assert (upload[0], push[0]) == (400, 400)
    assert "not supported yet" in upload[1]["detail"]
    assert "add --remote" in push[1]["detail"]


def test_listeners_and_integrations_are_empty(call):
    assert call("get", "/v2/listeners") == (200, {"resources": [], "offset": 0})
    assert call("get", "/v1/integrations/github/install") == (200, [])
