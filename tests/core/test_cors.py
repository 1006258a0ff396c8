"""Requests of scripts from other origins to the APIs."""

from __future__ import annotations

import pytest

ORIGIN = {"Origin": "https://app.example"}
PREFLIGHT = ORIGIN | {
    "Access-Control-Request-Method": "POST",
    "Access-Control-Request-Headers": "x-api-key,content-type,content-encoding",
}
EXPECTED_HEADERS = {
    *("x-api-key", "x-tenant-id", "x-organization-id", "authorization", "content-type"),
    *("content-encoding", "x-pre-compressed-size", "x-post-compressed-size", "langsmith-project"),
}


@pytest.mark.parametrize("path", ["/runs/multipart", "/runs/batch", "/api/v1/sessions", "/info"])
def test_preflight_is_answered_for_any_origin_without_cookies(client, db, path):
    response = client.options(path, headers=PREFLIGHT)

    assert response.status_code == 204
    assert response["Access-Control-Allow-Origin"] == "*"
    assert "PATCH" in response["Access-Control-Allow-Methods"]
    allowed = response["Access-Control-Allow-Headers"].replace(" ", "").split(",")
    assert set(allowed) >= EXPECTED_HEADERS
    assert "Access-Control-Allow-Credentials" not in response


@pytest.mark.parametrize(
    "path", ["/runs", "/api/v1/sessions", "/unknown", "/v1/platform/unknown/1"]
)
def test_options_is_answered_on_any_path_without_credentials(client, db, path):
    response = client.options(path)

    assert (response.status_code, response.content) == (204, b"")
    assert response["Allow"] == "GET, POST, PUT, PATCH, DELETE, HEAD, OPTIONS"
    assert "Access-Control-Allow-Methods" not in response
    assert client.options(path, headers=PREFLIGHT).status_code == 204


def test_cross_origin_scripts_may_read_responses_and_errors(client, db):
    for path, status in (("/info", 200), ("/sessions", 401)):
        response = client.get(path, headers=ORIGIN)
        assert response.status_code == status
        assert response["Access-Control-Allow-Origin"] == "*"


def test_request_without_origin_gets_no_cors_headers(client, db):
    assert "Access-Control-Allow-Origin" not in client.get("/info")


def test_cors_origins_setting_limits_the_origins(client, db, settings):
    settings.CORS_ORIGINS = ("https://app.example",)

    chosen = client.options("/runs/batch", headers=PREFLIGHT)
    other = client.options("/runs/batch", headers=PREFLIGHT | {"Origin": "https://evil.example"})

    assert chosen["Access-Control-Allow-Origin"] == "https://app.example"
    assert chosen["Vary"] == "Origin"
    assert "Access-Control-Allow-Origin" not in other
