"""Feedback with tokens, without an API key."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest
from django.test import Client

from apps.feedback.models import Feedback, FeedbackConfig, FeedbackToken
from apps.feedback.services import tokens as services
from tests.factories.tracing import stored_run

URL = "/feedback/tokens"


@pytest.fixture
def browser():
    return Client()


def token_path(token):
    return f"/feedback/tokens/{token['url'].rsplit('/', 1)[1]}"


@pytest.fixture
def run_id(workspace):
    return str(stored_run(workspace))


@pytest.fixture
def token(api, run_id):
    return api.post(URL, {"run_id": run_id, "feedback_key": "liked"}).json()


def post_feedback(browser, token, **fields):
    return browser.post(token_path(token), fields, content_type="application/json")


def test_a_token_creates_feedback_on_its_run_from_any_origin(browser, api, run_id, token, settings):
    assert token["url"].startswith(f"{settings.BASE_URL}/feedback/tokens/")
    assert UUID(token_path(token).rsplit("/", 1)[1])

    response = post_feedback(browser, token, score=True, comment="nice", metadata={"page": "/a"})

    assert response.status_code == 200
    assert response["Access-Control-Allow-Origin"] == "*"
    (feedback,) = api.get("/feedback", run=run_id).json()
    assert (feedback["key"], feedback["score"]) == ("liked", 1.0)
    assert feedback["id"] != token["id"]
    assert (feedback["comment"], feedback["trace_id"]) == ("nice", run_id)
    assert feedback["feedback_source"]["metadata"] == {"page": "/a"}


def test_each_use_of_a_token_creates_another_feedback(browser, api, run_id, token):
    post_feedback(browser, token, score=1)

    response = browser.get(
        token_path(token), {"score": "0.5", "value": "ok", "correction": '{"a":1}'}
    )

    assert response.status_code == 200
    entries = api.get("/feedback", run=run_id).json()
    contents = {(entry["score"], entry["value"], str(entry["correction"])) for entry in entries}
    assert contents == {(1.0, None, "None"), (0.5, "ok", "{'a': 1}")}
    assert len(entries) == 2


def test_id_of_a_token_redeems_it_until_the_token_expires(browser, api, workspace, run_id, token):
    path = f"/feedback/tokens/{token['id']}"

    accepted = browser.post(path, {"score": 1}, content_type="application/json")
    FeedbackToken.objects.for_workspace(workspace).update(expires_at=datetime.now(UTC))
    expired = browser.post(path, {"score": 0}, content_type="application/json")

    assert (accepted.status_code, expired.status_code) == (200, 410)
    assert [entry["score"] for entry in api.get("/feedback", run=run_id).json()] == [1.0]


def test_id_of_a_feedback_redeems_no_token(browser, api, run_id, token):
    post_feedback(browser, token, score=1)
    (feedback,) = api.get("/feedback", run=run_id).json()

    assert browser.get(f"/feedback/tokens/{feedback['id']}", {"score": 0}).status_code == 404


def test_a_preflight_is_accepted(browser, token):
    response = browser.options(
        token_path(token),
        headers={
            "Origin": "https://shop.example",
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "content-type",
        },
    )

    assert response.status_code == 204
    assert response["Access-Control-Allow-Headers"] == "content-type"
    assert "POST" in response["Access-Control-Allow-Methods"]


def test_unknown_and_expired_tokens_are_rejected(browser, api, workspace, token):
    FeedbackToken.objects.for_workspace(workspace).update(expires_at=datetime.now(UTC))

    expired = post_feedback(browser, token, score=1)
    unknown = browser.post(f"/feedback/tokens/{uuid4()}", {}, content_type="application/json")

    assert (expired.status_code, expired.json()["code"]) == (410, "feedback_token_expired")
    assert (unknown.status_code, unknown.json()["code"]) == (404, "feedback_token_unknown")
    assert expired["Access-Control-Allow-Origin"] == "*"
    assert not Feedback.objects.for_workspace(workspace).exists()


@pytest.mark.parametrize("body", [{"score": "much"}, {"comment": 1}, [], {"metadata": "x"}])
def test_invalid_body_is_rejected(browser, workspace, token, body):
    response = browser.post(token_path(token), body, content_type="application/json")

    assert response.status_code == 422
    assert not Feedback.objects.for_workspace(workspace).exists()


def test_the_secret_of_a_token_is_encrypted(workspace, token):
    row = FeedbackToken.objects.for_workspace(workspace).get()
    secret = token_path(token).rsplit("/", 1)[1]

    assert secret.encode() not in bytes(row.token) + bytes(row.token_hash)
    assert UUID(secret).bytes not in bytes(row.token) + bytes(row.token_hash)


def test_token_lifetime_defaults_to_three_hours(api, run_id):
    started_at = datetime.now(UTC)
    body = {"run_id": run_id, "feedback_key": "k"}
    expires_at = (started_at + timedelta(days=2)).isoformat()

    bodies = [
        body,
        body | {"expires_in": {"days": 1, "hours": 2, "minutes": 3}},
        body | {"expires_at": expires_at, "expires_in": None},
    ]
    tokens = api.post(URL, bodies).json()

    lifetimes = [datetime.fromisoformat(row["expires_at"]) - started_at for row in tokens]
    assert [round(lifetime / timedelta(minutes=1)) for lifetime in lifetimes] == [180, 1563, 2880]
    listed = api.get(URL, run_id=run_id).json()
    assert listed == tokens
    assert api.get(URL, run_id=run_id, limit=1, offset=1).json() == tokens[1:2]


def test_repeating_an_id_returns_the_existing_token(api, make_api, run_id, other_workspace):
    body = {"run_id": run_id, "feedback_key": "k", "id": str(uuid4())}
    first = api.post(URL, body).json()

    assert api.post(URL, body).json() == first
    assert first["id"] == body["id"]
    assert make_api(other_workspace).post(URL, body).status_code == 409
    assert make_api(other_workspace).get(URL, run_id=run_id).json() == []


def test_config_of_a_token_is_saved_for_its_key(api, workspace, run_id):
    config = {"type": "continuous", "min": 0, "max": 1}
    body = {"run_id": run_id, "feedback_key": "k", "feedback_config": config}

    assert api.post(URL, body).status_code == 200
    assert api.post(URL, body | {"feedback_config": {"type": "odd"}}).status_code == 422

    assert FeedbackConfig.objects.for_workspace(workspace).get().config["max"] == 1.0


def test_tokens_are_deleted_a_month_after_expiry(workspace, token, api, run_id):
    api.post(URL, {"run_id": run_id, "feedback_key": "younger"})
    tokens = FeedbackToken.objects.for_workspace(workspace)
    tokens.filter(pk=token["id"]).update(expires_at=datetime.now(UTC) - timedelta(days=31))

    services.delete_expired()

    assert [row.key for row in tokens] == ["younger"]
