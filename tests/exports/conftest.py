from __future__ import annotations

import io
from typing import Any

import boto3
import pyarrow.parquet as pq
import pytest

from apps.exports import dispatch
from apps.organizations.models import Workspace
from apps.tracing.models import Project
from apps.tracing.services import ensure_project
from tests.tracing.conftest import api, make_api, objects, other_workspace

__all__ = ["api", "make_api", "objects", "other_workspace"]

CREDENTIALS = {"access_key_id": "id", "secret_access_key": "secret"}


@pytest.fixture
def project(workspace: Workspace) -> Project:
    return ensure_project(workspace.pk, "exported")


@pytest.fixture(autouse=True)
def send_no_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Send no task, because the tests call `runner.run_slice`."""
    monkeypatch.setattr(dispatch, "send_run_exports", lambda: None)


@pytest.fixture(scope="session")
def s3_url() -> Any:
    """The URL of a local S3 server."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def s3(s3_url: str, settings: Any) -> Any:
    """An S3 client of the local server, with the bucket `exports`."""
    settings.ALLOW_PRIVATE_ADDRESSES = True
    client = boto3.client(
        "s3",
        endpoint_url=s3_url,
        region_name="us-east-1",
        aws_access_key_id="id",
        aws_secret_access_key="secret",
    )
    client.create_bucket(Bucket="exports")
    yield client
    for item in client.list_objects_v2(Bucket="exports").get("Contents", []):
        client.delete_object(Bucket="exports", Key=item["Key"])
    client.close()


def read_parquet(content: bytes) -> list[dict[str, Any]]:
    """Return the rows of a Parquet file."""
    rows: list[dict[str, Any]] = pq.read_table(io.BytesIO(content)).to_pylist()
    return rows
