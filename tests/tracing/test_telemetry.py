"""Routes that agent servers call: /auth, /v1/beacon, .../metadata/submit."""

from __future__ import annotations

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
        ("verify", {"license": "x"}, {"token": ""}),
        ("ingest-traces", {"trace_transactions": [{}, {}]}, {"inserted_count": 2}),
        ("usage-snapshot", {}, {}),
        ("v1/metrics", {"resourceMetrics": []}, {}),
        ("v1/traces", {"resourceSpans": []}, {}),
    ],
)
def test_beacons_are_accepted(client, db, path, body, expected):
    response = client.post(f"/v1/beacon/{path}", body, content_type="application/json")

    assert (response.status_code, response.json()) == (200, expected)


def test_a_malformed_beacon_is_rejected(client, db):
    for body in ("[]", '{"trace_transactions": 1}'):
        response = client.post("/v1/beacon/ingest-traces", body, content_type="application/json")
        assert response.status_code == 422
