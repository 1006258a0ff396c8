"""The exporters of OpenTelemetry and of the `langsmith` SDK against the running platform."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import httpx
import pytest
from langsmith import Client, traceable
from langsmith.run_helpers import tracing_context
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor

from tests.live import Live

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")


@pytest.fixture
def project() -> str:
    return f"otel {uuid.uuid4()}"


@pytest.fixture
def exporter(live: Live, project: str) -> OTLPSpanExporter:
    return OTLPSpanExporter(
        endpoint=f"{live.api_url}/otel/v1/traces",
        headers={"x-api-key": live.api_key, "Langsmith-Project": project},
        compression=Compression.Gzip,
    )


@pytest.fixture
def reader(live: Live) -> Iterator[Client]:
    client = Client(api_url=live.api_url, api_key=live.api_key)
    yield client
    client.cleanup()


def read_tree(client: Client, project: str) -> list[tuple[str, str, int]]:
    """Return name, type and depth of all runs, depth first."""
    runs = sorted(client.list_runs(project_name=project), key=lambda run: run.dotted_order or "")
    return [(run.name, run.run_type, (run.dotted_order or "").count(".")) for run in runs]


def trace_agent(tracer: trace.Tracer) -> None:
    with tracer.start_as_current_span("agent", attributes={"openinference.span.kind": "AGENT"}):
        with tracer.start_as_current_span("plan") as plan:
            plan.set_attribute("traceloop.span.kind", "task")
            with tracer.start_as_current_span("chat") as chat:
                chat.set_attribute("gen_ai.operation.name", "chat")
                chat.set_attribute("gen_ai.request.model", "gpt-4o")
                chat.set_attribute("gen_ai.usage.input_tokens", 1000)
                chat.set_attribute("gen_ai.usage.output_tokens", 100)
                chat.set_attribute("gen_ai.prompt.0.role", "user")
                chat.set_attribute("gen_ai.prompt.0.content", "why?")
        with tracer.start_as_current_span("search") as tool:
            tool.set_attribute("gen_ai.operation.name", "execute_tool")
            tool.record_exception(ValueError("nothing found"))
            tool.set_status(trace.StatusCode.ERROR, "nothing found")


EXPECTED = [("agent", "chain", 0), ("plan", "chain", 1), ("chat", "llm", 2), ("search", "tool", 1)]


def test_spans_sent_one_by_one_are_one_tree(
    exporter: OTLPSpanExporter, reader: Client, project: str
) -> None:
    provider = TracerProvider(resource=Resource({"service.name": "agent"}))
    provider.add_span_processor(SimpleSpanProcessor(exporter))

    trace_agent(provider.get_tracer("app"))
    provider.shutdown()

    assert read_tree(reader, project) == EXPECTED
    (root,) = reader.list_runs(project_name=project, is_root=True)
    whole = reader.read_run(root.id, load_child_runs=True)
    assert whole.child_runs is not None
    assert [run.name for run in whole.child_runs] == ["plan", "search"]
    assert (whole.total_tokens, str(whole.total_cost)) == (1100, "0.0035")
    assert "nothing found" in (whole.child_runs[1].error or "")


def test_spans_sent_in_one_request_are_one_tree(
    exporter: OTLPSpanExporter, reader: Client, project: str
) -> None:
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(exporter))

    trace_agent(provider.get_tracer("app"))
    assert provider.force_flush()
    provider.shutdown()

    assert read_tree(reader, project) == EXPECTED


@traceable(run_type="llm", metadata={"ls_provider": "openai", "ls_model_name": "gpt-4o"})
def ask_model(question: str) -> dict[str, object]:
    usage = {"input_tokens": 10, "output_tokens": 1, "total_tokens": 11}
    return {"answer": f"to {question}", "usage_metadata": usage}


@traceable(run_type="chain", tags=["a", "b"])
def research(question: str) -> str:
    return str(ask_model(question)["answer"]) + str(ask_model(question)["answer"])


@traceable(run_type="chain")
def ask(question: str) -> str:
    return research(question)


def create_sdk_client(
    live: Live, exporter: OTLPSpanExporter, mode: str
) -> tuple[Client, TracerProvider]:
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(exporter))
    client = Client(
        api_url=live.api_url,
        api_key=live.api_key,
        otel_tracer_provider=provider,
        tracing_mode=mode,  # type: ignore[arg-type]
    )
    return client, provider


SDK_TREE = [
    *(("ask", "chain", 0), ("research", "chain", 1)),
    *(("ask_model", "llm", 2), ("ask_model", "llm", 2)),
]


def test_the_sdk_sends_a_trace_by_opentelemetry(
    live: Live, exporter: OTLPSpanExporter, reader: Client, project: str
) -> None:
    client, provider = create_sdk_client(live, exporter, "otel")
    with tracing_context(enabled=True, client=client, project_name=project):
        ask("why?")
    client.flush()
    assert provider.force_flush()

    assert read_tree(reader, project) == SDK_TREE
    runs = list(reader.list_runs(project_name=project))
    by_name = {run.name: run for run in runs}
    assert by_name["research"].inputs == {"question": "why?"}
    assert by_name["research"].tags == ["a", "b"]
    assert by_name["ask_model"].outputs is not None
    assert by_name["ask_model"].outputs["answer"] == "to why?"
    assert by_name["ask"].total_tokens == 22
    assert by_name["ask"].id == by_name["ask"].trace_id
    client.cleanup()
    provider.shutdown()


def test_the_sdk_in_hybrid_mode_stores_each_run_once(
    live: Live, exporter: OTLPSpanExporter, reader: Client, project: str
) -> None:
    client, provider = create_sdk_client(live, exporter, "hybrid")
    with tracing_context(enabled=True, client=client, project_name=project):
        ask("why?")
    client.flush()
    ids = {run.id for run in reader.list_runs(project_name=project)}
    assert provider.force_flush()

    assert read_tree(reader, project) == SDK_TREE
    assert {run.id for run in reader.list_runs(project_name=project)} == ids
    assert len(ids) == 4
    client.cleanup()
    provider.shutdown()


def test_a_json_request_with_hexadecimal_ids_is_stored(
    live: Live, reader: Client, project: str
) -> None:
    trace_id, start_time = uuid.uuid4().hex, "1767225600000000000"
    body = {
        "resourceSpans": [
            {
                "resource": {
                    "attributes": [
                        {"key": "langsmith.project.name", "value": {"stringValue": project}}
                    ]
                },
                "scopeSpans": [
                    {
                        "spans": [
                            {
                                "traceId": trace_id,
                                "spanId": "00000000000000aa",
                                "name": "by hand",
                                "kind": "SPAN_KIND_INTERNAL",
                                "startTimeUnixNano": start_time,
                                "endTimeUnixNano": int(start_time) + 10**9,
                                "attributes": [{"key": "n", "value": {"intValue": "7"}}],
                                "status": {"code": "STATUS_CODE_OK"},
                            }
                        ]
                    }
                ],
            }
        ]
    }

    response = httpx.post(f"{live.url}/otel/v1/traces", json=body, headers=live.headers)

    assert (response.status_code, response.json()) == (200, {})
    run = reader.read_run(uuid.UUID(trace_id))
    assert (run.name, run.status) == ("by hand", "success")
    assert (run.extra or {})["metadata"]["n"] == 7
