"""Routes that agent servers call: /auth, /v1/beacon, .../metadata/submit."""

from __future__ import annotations

import base64
import json

import pytest

METADATA = {
    "license_key": "k",
    "from_timestamp": "2026-01-02T03:00:00Z",
    "to_timestamp": "2026-01-02T03:05:00Z",
    "tags": {"langgraph.python.version": "1"},
    "measures": {"langgraph.platform.runs": 3},
    "logs": [],
}


@pytest.mark.parametrize("method", ["get", "post", "put"])
def test_auth_returns_the_workspace_of_the_key(api, workspace, method):
    response = getattr(api.client, method)("/auth")

    assert response.status_code == 200
    assert response.json() == {
        "org_config": {
            "org_id": str(workspace.organization_id),
            "tenant_id": str(workspace.pk),
        }
    }


@pytest.mark.parametrize("headers", [{}, {"X-Api-Key": "unknown"}])
def test_auth_rejects_an_unknown_key(client, db, headers):
    assert client.post("/auth", headers=headers).status_code == 401


def test_the_sign_in_method_is_public(client, db):
    assert client.get("/auth/public").json()["auth_type"] == "password"


@pytest.mark.parametrize("prefix", ["", "/api", "/api/v1", "/any/where"])
def test_metadata_is_accepted_without_a_key(client, db, prefix):
    path = f"{prefix}/v1/metadata/submit"

    response = client.post(path, METADATA, content_type="application/json")

    assert (response.status_code, response.content) == (204, b"")


@pytest.mark.parametrize("body", ["[]", "{", '{"tags": 1}', '{"measures": []}', '{"logs": "x"}'])
def test_malformed_metadata_is_rejected(client, db, body):
    response = client.post("/v1/metadata/submit", body, content_type="application/json")

    assert response.status_code == 422


@pytest.mark.parametrize(
    ("path", "body", "expected"),
    [
        ("ingest-traces", {"license": "x", "trace_transactions": [{}, {}]}, {"inserted_count": 2}),
        ("usage-snapshot", {}, {}),
        ("v1/metrics", {"resourceMetrics": []}, {}),
        ("v1/traces", {"resourceSpans": []}, {}),
    ],
)
def test_beacons_are_accepted(client, db, path, body, expected):
    response = client.post(f"/v1/beacon/{path}", body, content_type="application/json")

    assert (response.status_code, response.json()) == (200, expected)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("ingest-traces", "[]"),
        ("ingest-traces", '{"license": "x", "trace_transactions": 1}'),
        ("ingest-traces", '{"license": "x", "trace_transactions": [1]}'),
        ("v1/metrics", '{"resourceMetrics": {}}'),
        ("v1/traces", '{"resourceSpans": ["x"]}'),
    ],
)
def test_a_malformed_beacon_is_rejected(client, db, path, body):
    response = client.post(f"/v1/beacon/{path}", body, content_type="application/json")

    assert response.status_code == 422


def test_licence_key_gets_a_signed_token_that_does_not_contain_it(client, db):
    body = {"license": "lcl_hunter2"}

    response = client.post("/v1/beacon/verify", body, content_type="application/json")

    token = response.json()["token"]
    header, claims, signature = (
        base64.urlsafe_b64decode(f"{segment}==") for segment in token.split(".")
    )
    assert json.loads(header) == {"alg": "HS256", "typ": "JWT"}
    assert json.loads(claims)["exp"] - json.loads(claims)["iat"] == 86_400
    assert len(signature) == 32
    assert b"hunter2" not in header + claims


@pytest.mark.parametrize("path", ["verify", "ingest-traces"])
@pytest.mark.parametrize("licence", [None, "", "  ", 1, ["x"], "x" * 10_001])
def test_bad_licence_is_rejected(client, db, path, licence):
    for body in ({"license": licence}, {}):
        response = client.post(f"/v1/beacon/{path}", body, content_type="application/json")
        assert (response.status_code, response.json()["code"]) == (422, "invalid")
        assert "license" in response.json()["detail"]
