import os
import subprocess
import sys

import pytest
from django.test import Client

from apps.core.observability import metrics
from tests.factories.api_keys import key_for
from tests.factories.organizations import UserFactory, WorkspaceFactory
from tests.factories.tracing import wire_run

pytestmark = pytest.mark.django_db


@pytest.fixture
def own_metrics(tmp_path, monkeypatch):
    """Read only the metrics of this process: the workers of a test run share a data folder."""
    # The first observation creates the files.
    metrics.ingested_runs.labels("langsmith")
    metrics.observe_request("GET", "a/route", 200, 0.01)
    (tmp_path / "here").mkdir()
    for file in metrics.metrics_folder().glob(f"*/*_{os.getpid()}.db"):
        (tmp_path / "here" / file.name).symlink_to(file)
    monkeypatch.setattr(metrics, "metrics_folder", lambda: tmp_path)


def scrape(client, settings):
    token = {"Authorization": f"Bearer {settings.METRICS_TOKEN}"}
    response = client.get("/metrics", headers=token)
    assert response.status_code == 200
    return response.content.decode()


def read_metric(text, line):
    lines = [text_line for text_line in text.splitlines() if text_line.startswith(f"{line} ")]
    return float(lines[0].rpartition(" ")[2]) if lines else 0.0


def test_tenant_key_cannot_read_metrics(client):
    key = key_for(WorkspaceFactory())

    for headers in ({}, {"X-Api-Key": key}, {"Authorization": f"Bearer {key}"}):
        response = client.get("/metrics", headers=headers)

        assert response.status_code == 401
        assert b"slipway_" not in response.content


def test_user_who_is_not_an_operator_cannot_read_metrics(client):
    client.force_login(UserFactory())

    assert client.get("/metrics").status_code == 401


def test_operator_session_and_optionally_loopback_can_read_metrics(client, settings):
    operator = Client()
    operator.force_login(UserFactory(is_staff=True))

    assert operator.get("/metrics").status_code == 200
    assert client.get("/metrics").status_code == 401
    settings.METRICS_LOOPBACK = True
    assert client.get("/metrics").status_code == 200
    assert client.get("/metrics", REMOTE_ADDR="192.0.2.1").status_code == 401


def test_requests_are_counted_by_route_pattern(client, settings, own_metrics):
    key = {"X-Api-Key": key_for(WorkspaceFactory())}
    line = (
        'slipway_http_request_seconds_count{method="GET",route="runs/<uuid:run_id>",status="404"}'
    )
    initial_count = read_metric(scrape(client, settings), line)

    client.get("/runs/00000000-0000-0000-0000-000000000001", headers=key)
    client.get("/runs/00000000-0000-0000-0000-000000000002", headers=key)
    text = scrape(client, settings)

    assert read_metric(text, line) == initial_count + 2
    assert "00000000-0000" not in text


@pytest.mark.integration
def test_metrics_include_counts_of_other_processes(client, settings):
    line = 'slipway_task_seconds_count{outcome="success",task="elsewhere"}'
    initial_count = read_metric(scrape(client, settings), line)
    program = (
        "import django; django.setup()\n"
        "from apps.core.observability import metrics\n"
        "metrics.tasks.labels('elsewhere', 'success').observe(1)\n"
    )

    for _ in range(2):
        subprocess.run([sys.executable, "-c", program], check=True, timeout=120)

    assert read_metric(scrape(client, settings), line) == initial_count + 2


def test_metrics_include_gauges_of_the_system_status(client, settings):
    text = scrape(client, settings)

    for name in ("agent_runs_pending", "graph_hosts_busy", "pending_run_batches", "database_bytes"):
        assert f"\nslipway_{name} " in text
    assert 'slipway_up{part="database"} 1.0' in text
    assert 'slipway_queue_messages{queue="runs"}' in text


def test_accepted_runs_are_counted_by_wire(client, settings, own_metrics):
    workspace = WorkspaceFactory()
    line = 'slipway_ingested_runs_total{wire="langsmith"}'
    initial_count = read_metric(scrape(client, settings), line)

    client.post(
        "/runs/batch",
        {"post": [wire_run(), wire_run()]},
        content_type="application/json",
        headers={"X-Api-Key": key_for(workspace, "ingest")},
    )

    assert read_metric(scrape(client, settings), line) == initial_count + 2


def test_labels_contain_no_client_input(client, settings):
    client.generic("SENTINELMETHOD", "/sentinel-path", headers={"X-Request-ID": "sentinel-id"})

    assert "sentinel" not in scrape(client, settings).lower()


def test_labels_of_a_response_are_looked_up_once(client, settings, monkeypatch, own_metrics):
    """A look-up takes ten times as long as the observation itself."""
    line = 'slipway_http_request_seconds_count{method="GET",route="a/route",status="200"}'
    initial_count = read_metric(scrape(client, settings), line)

    with monkeypatch.context() as patch:
        patch.setattr(metrics.requests, "labels", None)
        metrics.observe_request("GET", "a/route", 200, 0.01)

    assert read_metric(scrape(client, settings), line) == initial_count + 1
