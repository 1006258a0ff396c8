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
    """Sends requests as an OTLP exporter does."""

    def __init__(self, key: str) -> None:
        self.client = Client(headers={"X-Api-Key": key})

    def send(
        self,
        body: bytes,
        content_type: str = "application/x-protobuf",
        path: str = PATH,
        **headers: str,
    ) -> Any:
        header_values = {name.replace("_", "-"): text for name, text in headers.items()}
        return self.client.generic(
            "POST", path, body, content_type=content_type, headers=header_values
        )

    def send_spans(self, *spans: Span, **fields: Any) -> Any:
        return self.send(export(*spans, **fields).SerializeToString())


@pytest.fixture
def exporter(workspace: Workspace) -> Exporter:
    return Exporter(key_for(workspace))


@pytest.fixture
def store_spans(workspace: Workspace) -> Callable[..., IngestResult]:
    """A function that stores spans as the endpoint does, without HTTP."""

    def decode_and_store(*spans: Span, **fields: Any) -> IngestResult:
        decoded = protobuf_decoder.decode(export(*spans, **fields).SerializeToString())
        return ingest(workspace.pk, build_request(decoded, project=None))

    return decode_and_store
