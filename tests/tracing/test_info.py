"""GET /info, /info/health, /ok: open to all."""

from __future__ import annotations

from uuid import uuid4

import pytest


@pytest.mark.parametrize("prefix", ["", "/api/v1", "/api"])
@pytest.mark.parametrize("key", [None, "unknown"])
def test_info_is_served_without_a_valid_key(client, db, prefix, key):
    response = client.get(f"{prefix}/info", headers={"X-Api-Key": key} if key else {})

    assert response.status_code == 200
    assert response.json()["version"] >= "0.18.0"


def test_info_has_every_key_that_clients_require(client, db):
    info = client.get("/info").json()

    assert info["batch_ingest_config"] == {
        "use_multipart_endpoint": True,
        "scale_up_qsize_trigger": 1000,
        "scale_up_nthreads_limit": 16,
        "scale_down_nempty_trigger": 4,
        "size_limit": 100,
        "size_limit_bytes": 20_971_520,
    }
    flags = info["instance_flags"]
    assert flags["zstd_compression_enabled"]
    assert flags["gzip_body_enabled"]
    assert flags["ch_query_enabled"]


def test_info_announces_the_multipart_routes_of_examples(api):
    flags = api.get("/info").json()["instance_flags"]

    # The JSON body is refused by the route: it is not multipart.
    assert api.post("/v1/platform/examples/multipart", {}).json()["code"] == "bad_body"
    unknown = api.post(f"/v1/platform/datasets/{uuid4()}/examples", {})
    assert unknown.json()["code"] == "dataset_not_found"
    assert flags["dataset_examples_multipart_enabled"] is True
    assert flags["examples_multipart_enabled"] is True


@pytest.mark.parametrize("path", ["/ok", "/api/v1/ok", "/info/health"])
def test_health_is_open(client, db, path):
    assert client.get(path).json() == {"ok": True}


def test_info_names_the_processes_of_the_playground(client, db, settings):
    settings.PLAYGROUND_PROCESSES = 2

    assert client.get("/info").json()["components"] == {"playground": {"processes": 2}}
