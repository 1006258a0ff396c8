"""Feedback over HTTP: created, read, changed and deleted."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from apps.core.ids import uuid7
from apps.feedback.models import Feedback, FeedbackConfig
from apps.feedback.services import attach_to_runs
from apps.trace_store.models import RetainedTrace
from apps.trace_store.postgres.postprocess.processor import process_all
from apps.tracing.services import ensure_addressed_project
from tests.factories.tracing import (
    ProjectFactory,
    ingest,
    multipart_body,
    read_run,
    stored_run,
    wire_run,
)

PATHS = [
    "/feedback",
    "/feedback/00000000-0000-4000-8000-000000000000",
    "/feedback/tokens",
    "/feedback-configs",
]


@pytest.mark.parametrize("path", PATHS)
def test_request_without_key_is_rejected(client, db, path):
    assert client.get(path).status_code == 401


def test_a_read_only_key_creates_no_feedback(make_api, workspace):
    reader = make_api(workspace, "read")

    assert reader.post("/feedback", {"key": "k", "run_id": str(uuid4())}).status_code == 403
    assert reader.get("/feedback").json() == []


def test_feedback_takes_project_and_trace_from_its_run(api, workspace):
    root = wire_run(session_name="shop")
    child = wire_run(root)
    ingest(workspace, root, child)
    project_id = str(read_run(workspace, root["id"]).row.project_id)

    created = api.post(
        "/feedback",
        {
            "key": "good",
            "run_id": child["id"],
            "score": True,
            "value": {"why": [1]},
            "comment": "well done",
            "correction": "less",
            "feedback_source": {"type": "model", "metadata": {"__run": {"run_id": root["id"]}}},
            "extra": {"a": 1},
        },
    )

    assert created.status_code == 200
    body = created.json()
    assert body.pop("created_at") == api.get(f"/feedback/{body['id']}").json()["created_at"]
    assert body.pop("modified_at")
    feedback_id = body.pop("id")
    assert body == {
        "start_time": child["start_time"].replace("+00:00", "Z"),
        "run_id": child["id"],
        "trace_id": root["id"],
        "session_id": project_id,
        "key": "good",
        "score": 1.0,
        "value": {"why": [1]},
        "comment": "well done",
        "correction": "less",
        "feedback_source": {
            "type": "model",
            "metadata": {"__run": {"run_id": root["id"]}},
            "user_id": None,
            "user_name": None,
            "ls_user_id": None,
        },
        "feedback_group_id": None,
        "comparative_experiment_id": None,
        "feedback_thread_id": None,
        "is_root": False,
        "error": False,
        "extra": {"a": 1},
    }
    assert [feedback["id"] for feedback in api.get("/feedback", run=child["id"]).json()] == [
        feedback_id
    ]


def test_feedback_with_an_existing_id_is_replaced(api, workspace):
    run_id, feedback_id = str(stored_run(workspace)), str(uuid4())
    body = {"id": feedback_id, "key": "good", "run_id": run_id}
    api.post("/feedback", body | {"score": 0})

    repeated = api.post("/feedback/eager", body | {"score": 1})

    assert repeated.json()["score"] == 1.0
    assert [feedback.score for feedback in Feedback.objects.for_workspace(workspace)] == [1.0]


def test_feedback_id_of_another_workspace_is_rejected_and_unchanged(
    api, make_api, workspace, other_workspace
):
    feedback_id = str(uuid4())
    body = {"id": feedback_id, "key": "good", "run_id": str(uuid4()), "score": 1}
    make_api(other_workspace).post("/feedback", body)

    response = api.post("/feedback", body | {"score": 0})

    assert (response.status_code, response.json()["code"]) == (409, "feedback_id_taken")
    assert [feedback.score for feedback in Feedback.objects.for_workspace(other_workspace)] == [1.0]
    assert not Feedback.objects.for_workspace(workspace).exists()


def test_feedback_on_a_foreign_run_is_answered_like_feedback_on_a_missing_run(
    api, workspace, other_workspace
):
    foreign = str(stored_run(other_workspace, session_name="secret"))
    unknown = str(uuid7())
    responses = []
    for run_id in (foreign, unknown):
        body = api.post("/feedback", {"key": "k", "run_id": run_id}).json()
        responses.append(
            {n: v for n, v in body.items() if n not in {"id", "run_id"} and "_at" not in n}
        )

    process_all()
    attach_to_runs.attach_pending()

    assert responses[0] == responses[1]
    assert responses[0]["session_id"] is responses[0]["trace_id"] is None
    feedback = Feedback.objects.for_workspace(workspace).get(run_id=foreign)
    assert (feedback.project_id, feedback.is_root) == (None, None)
    assert not Feedback.objects.for_workspace(other_workspace).exists()


def test_feedback_before_its_run_is_attached_by_post_processing(api, workspace):
    run = wire_run(extra={"metadata": {"thread_id": "t1"}})
    created = api.post("/feedback", {"key": "good", "run_id": run["id"], "score": 1}).json()
    attach_to_runs.attach_pending()  # the lookup has already run once

    ingest(workspace, run)
    process_all()

    feedback = Feedback.objects.for_workspace(workspace).get(pk=created["id"])
    row = read_run(workspace, run["id"]).row
    assert created["session_id"] is None
    assert (feedback.project_id, feedback.trace_id, feedback.is_root) == (
        row.project_id,
        row.id,
        True,
    )
    assert (feedback.start_time, feedback.thread_key) == (row.start_time, "t1")


def test_feedback_in_a_multipart_request_is_attached_later(api, workspace):
    run = wire_run()
    ingest(workspace, run)
    process_all()
    part = {"key": "good", "run_id": run["id"], "trace_id": run["id"], "score": 1}

    assert api.multipart(multipart_body((f"feedback.{uuid7()}", part))).status_code == 202
    feedback = Feedback.objects.for_workspace(workspace).get()
    assert (feedback.is_pending, feedback.project_id) == (True, None)
    Feedback.objects.for_workspace(workspace).update(
        modified_at=datetime.now(UTC) - timedelta(minutes=1)
    )
    attach_to_runs.attach_pending()

    feedback.refresh_from_db()
    project_id = read_run(workspace, run["id"]).row.project_id
    assert (feedback.is_pending, feedback.project_id) == (False, project_id)


def test_the_session_id_selects_between_runs_with_the_same_id(api, workspace):
    run = wire_run(session_name="one")
    ingest(workspace, run, run | {"session_name": "two"})
    project = ProjectFactory._meta.model.unscoped.get(workspace=workspace, name="one")

    body = api.post(
        "/feedback", {"key": "k", "run_id": run["id"], "session_id": str(project.pk)}
    ).json()

    assert (body["session_id"], body["trace_id"]) == (str(project.pk), run["id"])


def test_feedback_extends_the_retention_of_its_trace_unless_disabled(api, workspace):
    ProjectFactory(workspace=workspace, name="short", short_since=datetime.now(UTC))
    stored_value, not_kept = (stored_run(workspace, session_name="short") for _ in range(2))

    api.post("/feedback", {"key": "k", "run_id": str(stored_value)})
    api.post("/feedback", {"key": "k", "run_id": str(not_kept), "extend_trace_retention": False})

    kept_traces = RetainedTrace.objects.for_workspace(workspace)
    assert list(kept_traces.values_list("trace_id", flat=True)) == [stored_value]


def test_feedback_on_a_project_needs_no_run(api, workspace, other_workspace):
    project, foreign_project = (
        ProjectFactory(workspace=workspace),
        ProjectFactory(workspace=other_workspace),
    )

    created = api.post("/feedback", {"key": "total", "session_id": str(project.pk), "score": 0.5})
    rejected = api.post("/feedback", {"key": "total", "session_id": str(foreign_project.pk)})

    assert (created.json()["run_id"], created.json()["session_id"]) == (None, str(project.pk))
    assert (rejected.status_code, rejected.json()["code"]) == (404, "project_not_found")


@pytest.mark.parametrize(
    "body",
    [
        {"run_id": str(uuid4())},
        {"key": "", "run_id": str(uuid4())},
        {"key": "k"},
        {"key": "k", "run_id": "no"},
        {"key": "k", "run_id": str(uuid4()), "score": "much"},
        {"key": "k", "run_id": str(uuid4()), "score": 10**400},
        {"key": "k", "run_id": str(uuid4()), "start_time": "yesterday"},
        {"key": "k", "run_id": str(uuid4()), "feedback_config": {"type": "odd"}},
        [],
        "text",
    ],
)
def test_invalid_body_is_rejected(api, workspace, body):
    response = api.post("/feedback", body)

    assert response.status_code == 422
    assert not Feedback.objects.for_workspace(workspace).exists()


@pytest.mark.parametrize(
    ("raw_value", "stored_value"),
    [
        (b'"a\\u0000b"', "a\ufffdb"),
        (b'"a\\ud800b"', "a\ufffdb"),
        (b"123456789012345678901234567890", 123456789012345680000000000000),
        (b'{"a": [[1]]}', {"a": [[1]]}),
    ],
)
def test_values_that_postgresql_rejects_are_replaced(api, workspace, raw_value, stored_value):
    body = b'{"key":"k\\u0000","run_id":"%s","value":%s}' % (str(uuid4()).encode(), raw_value)

    response = api.client.post("/feedback", body, content_type="application/json")

    assert response.status_code == 200
    assert (response.json()["key"], response.json()["value"]) == ("k\ufffd", stored_value)


def test_patch_changes_only_the_given_fields(api, workspace):
    run_id = str(stored_run(workspace))
    body = {
        "key": "good",
        "run_id": run_id,
        "score": 1,
        "comment": "a",
        "correction": {"x": 1},
    }
    url = f"/feedback/{api.post('/feedback', body).json()['id']}"

    assert api.patch(url, {"comment": None}).json()["comment"] is None
    body = api.patch(url, {"score": 0.25, "value": "x"}).json()

    assert (body["score"], body["value"], body["correction"]) == (0.25, "x", {"x": 1})
    assert body["comment"] is None
    assert api.patch(url, {"score": None}).json()["score"] is None
    assert api.patch(url, {"score": "x"}).status_code == 422
    assert api.patch(url, {}).status_code == 200


def test_deleted_feedback_is_not_found(api, workspace):
    url = f"/feedback/{api.post('/feedback', {'key': 'k', 'run_id': str(uuid4())}).json()['id']}"

    assert api.delete(url).status_code == 204
    assert api.delete(url).status_code == 404
    assert api.get(url).status_code == 404


@pytest.fixture
def feedback_set(api, workspace):
    """Feedback of several kinds: the ids by name, in order of creation."""
    run_id, other = str(stored_run(workspace)), str(stored_run(workspace, session_name="other"))
    project = str(ProjectFactory(workspace=workspace).pk)
    started_at = datetime(2026, 1, 1, tzinfo=UTC)
    fields = {
        "scored": {"key": "a", "run_id": run_id, "score": 1},
        "commented": {"key": "b", "run_id": run_id, "comment": "hm"},
        "elsewhere": {"key": "a", "run_id": other, "feedback_source": {"type": "app"}},
        "on_project": {"key": "a", "session_id": project, "score": 1},
        "on_thread": {"key": "c", "run_id": run_id, "feedback_thread_id": "t"},
        "compared": {"key": "c", "run_id": other, "comparative_experiment_id": str(UUID(int=7))},
    }
    ids = {}
    for day, (name, body) in enumerate(fields.items()):
        body["created_at"] = (started_at + timedelta(days=day)).isoformat()
        ids[name] = api.post("/feedback", body).json()["id"]
    return {"run": run_id, "other": other, "project": project, "ids": ids}


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ({"run": ["run"]}, ["on_thread", "commented", "scored"]),
        ({"run": ["run", "other"], "key": ["a"]}, ["elsewhere", "scored"]),
        ({"key": ["b", "c"]}, ["compared", "on_thread", "commented"]),
        ({"session": ["project"]}, ["on_project"]),
        ({"level": "session"}, ["on_project"]),
        ({"level": "run", "key": ["a"]}, ["elsewhere", "scored"]),
        ({"source": ["app"]}, ["elsewhere"]),
        ({"source": ["FeedbackSourceType.APP"]}, ["elsewhere"]),
        ({"has_comment": "True"}, ["commented"]),
        ({"has_score": "true"}, ["on_project", "scored"]),
        ({"has_score": "false", "key": ["a"]}, ["elsewhere"]),
        ({"feedback_thread_id": "t"}, ["on_thread"]),
        ({"comparative_experiment_id": str(UUID(int=7))}, ["compared"]),
        ({"min_created_at": "2026-01-05T00:00:00Z"}, ["compared", "on_thread"]),
        ({"max_created_at": "2026-01-01T00:00:00"}, ["scored"]),
        ({"limit": 2, "offset": 1}, ["on_thread", "on_project"]),
        ({"user": [str(UUID(int=1))]}, []),
    ],
)
def test_feedback_is_filtered_and_listed_newest_first(api, feedback_set, query, names):
    params = {
        name: [feedback_set.get(feedback, feedback) for feedback in value]
        if isinstance(value, list)
        else value
        for name, value in query.items()
    }

    ids = [feedback["id"] for feedback in api.get("/feedback", **params).json()]

    assert ids == [feedback_set["ids"][name] for name in names]


@pytest.mark.parametrize(
    "query", [{"limit": 101}, {"limit": 0}, {"offset": -1}, {"run": "x"}, {"level": "odd"}]
)
def test_invalid_query_is_rejected(api, query):
    assert api.get("/feedback", **query).status_code == 422


@pytest.mark.usefixtures("unexpired_caches")
def test_the_number_of_queries_does_not_grow_with_the_list(api, workspace):
    counts = []
    for size in (1, 20):
        for _ in range(size):
            api.post("/feedback", {"key": "k", "run_id": str(uuid4())})
        with CaptureQueriesContext(connection) as queries:
            assert api.get("/feedback", include_user_names="true").status_code == 200
        counts.append(len(queries))

    assert counts[0] == counts[1] <= 3


def test_the_config_field_name_of_old_clients_is_accepted(api, workspace):
    config = {"type": "continuous", "min": 0, "max": 5}

    api.post("/feedback", {"key": "k", "run_id": str(uuid4()), "feedbackConfig": config})

    assert FeedbackConfig.objects.for_workspace(workspace).get().config == {
        "type": "continuous",
        "min": 0.0,
        "max": 5.0,
        "categories": None,
    }


def test_invalid_feedback_does_not_reject_the_others_of_its_request(api, workspace):
    api.post("/feedback-configs", {"feedback_key": "k", "feedback_config": {"type": "freeform"}})
    run_id = str(uuid7())
    parts = [
        {"key": "k", "run_id": run_id, "score": 1},
        {"key": "k", "run_id": run_id, "feedback_config": {"type": "continuous"}},
        {"key": "j", "run_id": run_id, "session_id": str(uuid4())},
    ]

    response = api.multipart(multipart_body(*((f"feedback.{uuid7()}", part) for part in parts)))

    assert response.status_code == 202
    assert len(response.json()["errors"]) == 2
    assert [feedback.key for feedback in Feedback.objects.for_workspace(workspace)] == ["k"]


def test_an_agent_address_selects_the_project_of_feedback(api, workspace):
    project_id = ensure_addressed_project(workspace.pk, "support", "PRODUCTION")
    body = {"key": "k", "score": 1, "address": "lrn:agents/support/environments/production"}

    created = api.post("/feedback", body)
    feedback_id = uuid7()
    multipart_response = api.multipart(multipart_body((f"feedback.{feedback_id}", body)))

    assert (created.status_code, created.json()["session_id"]) == (200, str(project_id))
    assert multipart_response.status_code == 202
    assert {feedback.project_id for feedback in Feedback.objects.for_workspace(workspace)} == {
        project_id
    }


def test_an_unknown_agent_address_is_rejected(api, workspace, other_workspace):
    ensure_addressed_project(other_workspace.pk, "support", "PRODUCTION")
    body = {"key": "k", "score": 1, "address": "lrn:agents/support/environments/production"}
    session_id = str(ProjectFactory(workspace=workspace).pk)

    assert api.post("/feedback", body).status_code == 404
    assert api.post("/feedback", body | {"address": "nowhere"}).status_code == 404
    assert api.post("/feedback", body | {"session_id": session_id}).status_code == 422
    assert not Feedback.unscoped.exists()


def test_feedback_on_a_trace_belongs_to_its_root_run(api, workspace):
    root = wire_run()
    ingest(workspace, root)

    created = api.post("/feedback", {"key": "k", "score": 1, "trace_id": root["id"]}).json()

    assert (created["run_id"], created["is_root"]) == (root["id"], True)
