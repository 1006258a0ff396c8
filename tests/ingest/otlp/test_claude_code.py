"""POST /otel/v1/claude_code: the documented events of the coding agent."""

from __future__ import annotations

import json
from datetime import timedelta
from decimal import Decimal
from typing import Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ResourceLogs, ScopeLogs

from apps.organizations.models import Workspace
from apps.trace_store import RunQuery, run_store
from apps.tracing.models import Project
from tests.factories.spans import BEGIN, SECOND, encode_attributes
from tests.ingest.otlp.conftest import Exporter

PATH = "/otel/v1/claude_code"
EVENTS: list[tuple[str, float, dict[str, str]]] = [
    ("user_prompt", 0, {"prompt_length": "4", "prompt": "why?"}),
    (
        "api_request",
        3,
        {
            "model": "claude-sonnet-4-5",
            "cost_usd": "0.01",
            "duration_ms": "2000",
            "input_tokens": "10",
            "output_tokens": "5",
            "cache_read_tokens": "100",
        },
    ),
    ("tool_result", 5, {"tool_name": "Bash", "success": "false", "duration_ms": "1000"}),
]


def event_attributes(number: int, name: str, fields: dict[str, str]) -> dict[str, str]:
    shared = {"session.id": "s1", "prompt.id": "p1", "event.sequence": str(number)}
    return shared | {"event.name": name} | fields


def encode_json(*numbers: int) -> bytes:
    records = []
    for number in numbers:
        name, seconds, fields = EVENTS[number]
        pairs = [
            {"key": key, "value": {"stringValue": text}}
            for key, text in event_attributes(number, name, fields).items()
        ]
        records.append(
            {
                "timeUnixNano": str(BEGIN + int(seconds * SECOND)),
                "body": {"stringValue": f"claude_code.{name}"},
                "attributes": pairs,
            }
        )
    return json.dumps({"resourceLogs": [{"scopeLogs": [{"logRecords": records}]}]}).encode()


def encode_protobuf() -> bytes:
    records = [
        LogRecord(
            time_unix_nano=BEGIN + int(seconds * SECOND),
            body=AnyValue(string_value=f"claude_code.{name}"),
            attributes=encode_attributes(event_attributes(number, name, fields)),
        )
        for number, (name, seconds, fields) in enumerate(EVENTS)
    ]
    scope = ScopeLogs(log_records=records)
    request = ExportLogsServiceRequest(resource_logs=[ResourceLogs(scope_logs=[scope])])
    body: bytes = request.SerializeToString()
    return body


def list_runs(workspace: Workspace, name: str) -> list[Any]:
    project_row = Project.objects.for_workspace(workspace).get(name=name)
    query = RunQuery(project_ids=[project_row.pk])
    page = run_store.query(workspace.pk, query, limit=10)
    return sorted((run.row for run in page.runs), key=lambda row: row.dotted_order)


def test_a_prompt_is_a_trace_and_its_session_a_thread(
    exporter: Exporter, workspace: Workspace
) -> None:
    for numbers in ((1, 2), (0,)):
        response = exporter.send(
            encode_json(*numbers), "application/json", path=PATH, langsmith_project="agent"
        )
        assert (response.status_code, response.content) == (200, b"{}")

    root, prompt, request, tool = list_runs(workspace, "agent")
    assert [(run.name, run.run_type) for run in (prompt, request, tool)] == [
        *(("user_prompt", "chain"), ("api_request", "llm"), ("Bash", "tool")),
    ]
    assert prompt.inputs_preview == "why?"
    assert request.latency == timedelta(seconds=2)
    # Claude Code counts cached tokens beside its input tokens; the input of a run contains them.
    assert (request.model, request.usage.prompt_tokens) == ("claude-sonnet-4-5", 110)
    assert request.usage.details == {"prompt_token_details": {"cache_read": 100}}
    assert request.usage.total_cost == Decimal("0.01")
    assert tool.status == "error"
    assert {run.thread_key for run in (root, prompt, request, tool)} == {"s1"}
    assert {run.parent_run_id for run in (prompt, request, tool)} == {root.id}


def test_both_encodings_store_the_same_runs(exporter: Exporter, workspace: Workspace) -> None:
    exporter.send(encode_protobuf(), path=PATH, langsmith_project="p")
    before = [row.id for row in list_runs(workspace, "p")]
    exporter.send(encode_json(0, 1, 2), "application/json", path=PATH, langsmith_project="p")

    assert [row.id for row in list_runs(workspace, "p")] == before
    assert len(before) == 4


def test_a_malformed_body_is_rejected(exporter: Exporter) -> None:
    assert exporter.send(b"{", "application/json", path=PATH).status_code == 400
    assert exporter.send(b"\xff", path=PATH).status_code == 400
