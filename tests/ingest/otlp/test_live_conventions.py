"""Every attribute convention in every encoding, sent by OpenTelemetry to the live platform.

A span is sent when it ends, so leaves come before their parents.
"""

from __future__ import annotations

import base64
import gzip
import json
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from google.protobuf.json_format import MessageToDict
from langsmith import Client
from openinference.instrumentation import (
    Message,
    OITracer,
    TokenCount,
    TraceConfig,
    get_input_attributes,
    get_llm_attributes,
    get_output_attributes,
    get_span_kind_attributes,
    using_session,
)
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import (
    BatchSpanProcessor,
    SimpleSpanProcessor,
    SpanExporter,
    SpanExportResult,
)
from opentelemetry.trace import StatusCode, Tracer

from tests.live import Live

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning"),
    pytest.mark.xdist_group("otlp-conventions"),
]
QUESTION, ANSWER = "why?", "because"


class JsonExporter(SpanExporter):
    """Exports OTLP/JSON as other languages do: hexadecimal ids, numbers for enums."""

    def __init__(self, live: Live, project: str, *, gzipped: bool) -> None:
        self.url, self.gzipped = f"{live.url}/otel/v1/traces", gzipped
        self.headers = live.headers | {
            "Content-Type": "application/json",
            "Langsmith-Project": project,
        }

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        message = MessageToDict(encode_spans(spans), use_integers_for_enums=True)
        for span_fields in _iterate_spans(message):
            for name in ("traceId", "spanId", "parentSpanId"):
                if name in span_fields:
                    span_fields[name] = base64.b64decode(span_fields[name]).hex()
        body = json.dumps(message).encode()
        headers = self.headers
        if self.gzipped:
            body, headers = gzip.compress(body), headers | {"Content-Encoding": "gzip"}
        response = httpx.post(self.url, content=body, headers=headers, timeout=60)
        assert (response.status_code, response.json()) == (200, {}), response.text
        return SpanExportResult.SUCCESS


def _iterate_spans(message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for resource in message["resourceSpans"]:
        for scope in resource["scopeSpans"]:
            yield from scope["spans"]


def build_exporter(live: Live, project: str, encoding_name: str) -> SpanExporter:
    encoding, _, compression = encoding_name.partition("+")
    if encoding == "json":
        return JsonExporter(live, project, gzipped=bool(compression))
    return OTLPSpanExporter(
        endpoint=f"{live.api_url}/otel/v1/traces",
        headers={"x-api-key": live.api_key, "Langsmith-Project": project},
        compression=Compression.Gzip if compression else Compression.NoCompression,
    )


def trace_openinference(tracer: Tracer) -> None:
    """Trace with the instrumentation of OpenInference."""
    oi_tracer = OITracer(tracer, TraceConfig())
    user, assistant = (
        Message(role="user", content=QUESTION),
        Message(role="assistant", content=ANSWER),
    )
    with using_session("t-1"), oi_tracer.start_as_current_span("agent") as agent:
        agent.set_attributes(get_span_kind_attributes("agent"))
        agent.set_attributes(get_input_attributes({"q": QUESTION}))
        agent.set_attributes(get_output_attributes({"a": ANSWER}))
        with oi_tracer.start_as_current_span("model") as model:
            model.set_attributes(get_span_kind_attributes("llm"))
            model.set_attributes(
                get_llm_attributes(
                    provider="openai",
                    model_name="gpt-4o",
                    invocation_parameters={"temperature": 0.5},
                    input_messages=[user],
                    output_messages=[assistant],
                    token_count=TokenCount(prompt=10, completion=1, total=11),
                )
            )
        with oi_tracer.start_as_current_span("tool") as tool:
            tool.set_attributes(get_span_kind_attributes("tool"))
            fail_span(tool)


def fail_span(span: Any) -> None:
    span.record_exception(ValueError("nothing found"))
    span.set_status(StatusCode.ERROR, "nothing found")


def trace_agent(
    tracer: Tracer, agent: dict[str, Any], model: dict[str, Any], tool: dict[str, Any]
) -> None:
    with tracer.start_as_current_span("agent", attributes=agent):
        with tracer.start_as_current_span("model", attributes=model):
            pass
        with tracer.start_as_current_span("tool", attributes=tool) as span:
            fail_span(span)


NUMBERED_MESSAGES = {
    "gen_ai.system": "openai",
    "gen_ai.request.model": "gpt-4o",
    "gen_ai.request.temperature": 0.5,
    "gen_ai.prompt.0.role": "user",
    "gen_ai.prompt.0.content": QUESTION,
    "gen_ai.completion.0.role": "assistant",
    "gen_ai.completion.0.content": ANSWER,
    "gen_ai.usage.prompt_tokens": 10,
    "gen_ai.usage.completion_tokens": 1,
}
"""Attributes of a model call in the first conventions, which number each message."""


def trace_old_genai(tracer: Tracer) -> None:
    trace_agent(
        tracer,
        {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.conversation.id": "t-1",
            "gen_ai.prompt": json.dumps({"q": QUESTION}),
            "gen_ai.completion": json.dumps({"a": ANSWER}),
        },
        {
            "gen_ai.operation.name": "chat",
            **NUMBERED_MESSAGES,
        },
        {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "tool"},
    )


def trace_new_genai(tracer: Tracer) -> None:
    def encode_messages(role: str, text: str) -> str:
        return json.dumps([{"role": role, "parts": [{"type": "text", "content": text}]}])

    trace_agent(
        tracer,
        {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.conversation.id": "t-1",
            "gen_ai.input.messages": encode_messages("user", QUESTION),
            "gen_ai.output.messages": encode_messages("assistant", ANSWER),
        },
        {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "openai",
            "gen_ai.request.model": "gpt-4o",
            "gen_ai.request.temperature": 0.5,
            "gen_ai.input.messages": encode_messages("user", QUESTION),
            "gen_ai.output.messages": encode_messages("assistant", ANSWER),
            "gen_ai.usage.input_tokens": 10,
            "gen_ai.usage.output_tokens": 1,
        },
        {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.call.arguments": '{"q": "x"}'},
    )


def trace_traceloop(tracer: Tracer) -> None:
    trace_agent(
        tracer,
        {
            "traceloop.span.kind": "workflow",
            "traceloop.entity.name": "agent",
            "traceloop.association.properties.session_id": "t-1",
            "traceloop.entity.input": json.dumps({"q": QUESTION}),
            "traceloop.entity.output": json.dumps({"a": ANSWER}),
        },
        {
            "llm.request.type": "chat",
            **NUMBERED_MESSAGES,
            "llm.usage.total_tokens": 11,
        },
        {"traceloop.span.kind": "tool", "traceloop.entity.name": "tool"},
    )


def trace_langsmith(tracer: Tracer) -> None:
    messages = [{"role": "user", "content": QUESTION}, {"role": "assistant", "content": ANSWER}]
    usage = {"input_tokens": 10, "output_tokens": 1, "total_tokens": 11}
    trace_agent(
        tracer,
        {
            "langsmith.span.kind": "chain",
            "langsmith.metadata.thread_id": "t-1",
            "gen_ai.prompt": json.dumps({"q": QUESTION}),
            "gen_ai.completion": json.dumps({"a": ANSWER}),
        },
        {
            "langsmith.span.kind": "llm",
            "langsmith.metadata.ls_provider": "openai",
            "langsmith.metadata.ls_model_name": "gpt-4o",
            "gen_ai.request.model": "gpt-4o",
            "gen_ai.request.temperature": 0.5,
            "gen_ai.prompt": json.dumps({"messages": messages[:1]}),
            "gen_ai.completion": json.dumps({"messages": messages[1:]}),
            "langsmith.usage_metadata": json.dumps(usage),
        },
        {"langsmith.span.kind": "tool"},
    )


CONVENTIONS: dict[str, Callable[[Tracer], None]] = {
    "openinference": trace_openinference,
    "old genai": trace_old_genai,
    "new genai": trace_new_genai,
    "traceloop": trace_traceloop,
    "langsmith": trace_langsmith,
}


@pytest.mark.parametrize("encoding_name", ["protobuf", "protobuf+gzip", "json", "json+gzip"])
@pytest.mark.parametrize("convention", CONVENTIONS)
def test_a_trace_is_stored_as_one_tree(live: Live, convention: str, encoding_name: str) -> None:
    project = f"otel {uuid.uuid4()}"
    provider = TracerProvider(resource=Resource({"service.name": "agent"}))
    provider.add_span_processor(SimpleSpanProcessor(build_exporter(live, project, encoding_name)))

    CONVENTIONS[convention](provider.get_tracer("app"))
    provider.shutdown()

    agent, model, tool = list_runs(live, project)
    assert (agent.run_type, model.run_type, tool.run_type) == ("chain", "llm", "tool")
    assert (agent.status, model.status, tool.status) == ("success", "success", "error")
    assert "nothing found" in (tool.error or "")
    assert agent.id == agent.trace_id
    assert QUESTION in json.dumps(agent.inputs)
    assert ANSWER in json.dumps(agent.outputs)
    assert QUESTION in json.dumps(model.inputs)
    assert ANSWER in json.dumps(model.outputs)
    assert (model.prompt_tokens, model.completion_tokens, model.total_tokens) == (10, 1, 11)
    assert (agent.total_tokens, str(agent.total_cost)) == (11, "0.000035")
    metadata = (model.extra or {})["metadata"]
    assert (metadata["ls_provider"], metadata["ls_model_name"]) == ("openai", "gpt-4o")
    assert (model.extra or {})["invocation_params"]["temperature"] == 0.5
    with open_reader(live) as reader:
        (turn,) = reader.read_thread(thread_id="t-1", project_name=project)
    assert turn.id == agent.id


@pytest.mark.parametrize("encoding_name", ["protobuf", "json"])
def test_a_trace_split_over_requests_is_one_tree(live: Live, encoding_name: str) -> None:
    """Forty leaves in requests of two spans; the root, which ends last, is in the last request."""
    project = f"otel {uuid.uuid4()}"
    provider = TracerProvider()
    provider.add_span_processor(
        BatchSpanProcessor(build_exporter(live, project, encoding_name), max_export_batch_size=2)
    )
    tracer = provider.get_tracer("app")

    with tracer.start_as_current_span("root"):
        for branch in range(4):
            with tracer.start_as_current_span(f"branch {branch}"):
                for leaf in range(10):
                    tracer.start_span(f"leaf {branch}.{leaf}").end()
    assert provider.force_flush()
    provider.shutdown()

    runs = list_runs(live, project)
    names = [run.name for run in runs]
    assert names == [
        "root",
        *(
            name
            for branch in range(4)
            for name in (f"branch {branch}", *(f"leaf {branch}.{leaf}" for leaf in range(10)))
        ),
    ]
    assert {run.trace_id for run in runs} == {runs[0].id}
    assert [run.name for run in runs if len(run.parent_run_ids or ()) == 1] == [
        f"branch {branch}" for branch in range(4)
    ]


@contextmanager
def open_reader(live: Live) -> Iterator[Client]:
    client = Client(api_url=live.api_url, api_key=live.api_key)
    yield client
    client.cleanup()


def list_runs(live: Live, project: str) -> list[Any]:
    """Return all runs of the project, depth first."""
    with open_reader(live) as reader:
        return sorted(
            reader.list_runs(project_name=project), key=lambda run: run.dotted_order or ""
        )
