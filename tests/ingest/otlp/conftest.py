from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from apps.ingest.otlp import protobuf_decoder
from apps.ingest.otlp.batch_assembly import build_request
from apps.ingest.services.ingest_runs import IngestResult, ingest
from apps.organizations.models import Workspace
from tests.factories.api_keys import key_for
from tests.factories.spans import export

PATH = "/otel/v1/traces"


class Exporter:
    """Sends as an exporter does."""

    def __init__(self, key: str) -> None:
        self.client = Client(headers={"X-Api-Key": key})

    def send(
        self, body: bytes, kind: str = "application/x-protobuf", path: str = PATH, **headers: str
    ) -> Any:
        given = {name.replace("_", "-"): text for name, text in headers.items()}
        return self.client.generic("POST", path, body, content_type=kind, headers=given)

    def spans(self, *spans: Span, **about: Any) -> Any:
        return self.send(export(*spans, **about).SerializeToString())


@pytest.fixture
def exporter(workspace: Workspace) -> Exporter:
    return Exporter(key_for(workspace))


@pytest.fixture
def stored(workspace: Workspace) -> Callable[..., IngestResult]:
    """`stored(*spans)`: as the endpoint does, without HTTP."""

    def store(*spans: Span, **about: Any) -> IngestResult:
        decoded = protobuf_decoder.decode(export(*spans, **about).SerializeToString())
        return ingest(workspace.pk, build_request(decoded, project=None))

    return store
