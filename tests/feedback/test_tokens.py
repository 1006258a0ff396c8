"""Feedback by those who hold no key."""

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


def path_of(token):
    return f"/feedback/tokens/{token['url'].rsplit('/', 1)[1]}"


@pytest.fixture
def run_id(workspace):
    return str(stored_run(workspace))


@pytest.fixture
def token(api, run_id):
    return api.post(URL, {"run_id": run_id, "feedback_key": "liked"}).json()


def say(browser, token, **fields):
    return browser.post(path_of(token), fields, content_type="application/json")


def test_a_token_gives_feedback_on_its_run_from_any_page(browser, api, run_id, token, settings):
    assert token["url"].startswith(f"{settings.BASE_URL}/feedback/tokens/")
    assert UUID(path_of(token).rsplit("/", 1)[1])

    response = say(browser, token, score=True, comment="nice", metadata={"page": "/a"})

    assert response.status_code == 200
    assert response["Access-Control-Allow-Origin"] == "*"
    (given,) = api.get("/feedback", run=run_id).json()
    assert (given["id"], given["key"], given["score"]) == (token["id"], "liked", 1.0)
    assert (given["comment"], given["trace_id"]) == ("nice", run_id)
    assert given["feedback_source"]["metadata"] == {"page": "/a"}


def test_second_use_of_a_token_replaces_the_first(browser, api, run_id, token):
    say(browser, token, score=1)

    response = browser.get(path_of(token), {"score": "0.5", "value": "ok", "correction": '{"a":1}'})

    assert response.status_code == 200
    (given,) = api.get("/feedback", run=run_id).json()
    assert (given["score"], given["value"], given["correction"]) == (0.5, "ok", {"a": 1})


def test_a_browser_may_ask_first(browser, token):
    response = browser.options(
        path_of(token),
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

    over = say(browser, token, score=1)
    unknown = browser.post(f"/feedback/tokens/{uuid4()}", {}, content_type="application/json")

    assert (over.status_code, over.json()["code"]) == (410, "feedback_token_expired")
    assert (unknown.status_code, unknown.json()["code"]) == (404, "feedback_token_unknown")
    assert over["Access-Control-Allow-Origin"] == "*"
    assert not Feedback.objects.for_workspace(workspace).exists()


@pytest.mark.parametrize("body", [{"score": "much"}, {"comment": 1}, [], {"metadata": "x"}])
def test_invalid_body_is_rejected(browser, workspace, token, body):
    response = browser.post(path_of(token), body, content_type="application/json")

    assert response.status_code == 422
    assert not Feedback.objects.for_workspace(workspace).exists()


def test_a_tokens_id_is_no_token_and_the_secret_is_nowhere_in_clear(browser, workspace, token):
    row = FeedbackToken.objects.for_workspace(workspace).get()
    secret = path_of(token).rsplit("/", 1)[1]

    assert browser.get(f"/feedback/tokens/{token['id']}").status_code == 404
    assert secret.encode() not in bytes(row.token) + bytes(row.token_hash)
    assert UUID(secret).bytes not in bytes(row.token) + bytes(row.token_hash)


def test_token_lifetime_defaults_to_three_hours(api, run_id):
    begin = datetime.now(UTC)
    body = {"run_id": run_id, "feedback_key": "k"}
    at = (begin + timedelta(days=2)).isoformat()

    bodies = [
        body,
        body | {"expires_in": {"days": 1, "hours": 2, "minutes": 3}},
        body | {"expires_at": at, "expires_in": None},
    ]
    tokens = api.post(URL, bodies).json()

    lives = [datetime.fromisoformat(one["expires_at"]) - begin for one in tokens]
    assert [round(life / timedelta(minutes=1)) for life in lives] == [180, 1563, 2880]
    listed = api.get(URL, run_id=run_id).json()
    assert listed == tokens
    assert api.get(URL, run_id=run_id, limit=1, offset=1).json() == tokens[1:2]


def test_a_repeat_of_an_id_returns_the_token_that_is_there(api, api_of, run_id, stranger):
    body = {"run_id": run_id, "feedback_key": "k", "id": str(uuid4())}
    first = api.post(URL, body).json()

    assert api.post(URL, body).json() == first
    assert first["id"] == body["id"]
    assert api_of(stranger).post(URL, body).status_code == 409
    assert api_of(stranger).get(URL, run_id=run_id).json() == []


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

    assert [one.key for one in tokens] == ["younger"]
