"""Every convention of attributes on every wire, by OpenTelemetry's pipeline on the live platform.

A span is sent when it ends, so leaves come first; with a span a request, parents come later.
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
ASKED, ANSWERED = "why?", "because"


class JsonExporter(SpanExporter):
    """As exporters of other languages write OTLP/JSON: hexadecimal ids, numbers for words."""

    def __init__(self, live: Live, project: str, *, gzipped: bool) -> None:
        self.url, self.gzipped = f"{live.url}/otel/v1/traces", gzipped
        self.headers = live.headers | {
            "Content-Type": "application/json",
            "Langsmith-Project": project,
        }

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        message = MessageToDict(encode_spans(spans), use_integers_for_enums=True)
        for one in _spans_of(message):
            for name in ("traceId", "spanId", "parentSpanId"):
                if name in one:
                    one[name] = base64.b64decode(one[name]).hex()
        body = json.dumps(message).encode()
        headers = self.headers
        if self.gzipped:
            body, headers = gzip.compress(body), headers | {"Content-Encoding": "gzip"}
        answer = httpx.post(self.url, content=body, headers=headers, timeout=60)
        assert (answer.status_code, answer.json()) == (200, {}), answer.text
        return SpanExportResult.SUCCESS


def _spans_of(message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for resource in message["resourceSpans"]:
        for scope in resource["scopeSpans"]:
            yield from scope["spans"]


def exporter(live: Live, project: str, wire: str) -> SpanExporter:
    kind, _, packed = wire.partition("+")
    if kind == "json":
        return JsonExporter(live, project, gzipped=bool(packed))
    return OTLPSpanExporter(
        endpoint=f"{live.api_url}/otel/v1/traces",
        headers={"x-api-key": live.api_key, "Langsmith-Project": project},
        compression=Compression.Gzip if packed else Compression.NoCompression,
    )


def openinference(tracer: Tracer) -> None:
    """By its own instrumentation."""
    traced = OITracer(tracer, TraceConfig())
    user, assistant = (
        Message(role="user", content=ASKED),
        Message(role="assistant", content=ANSWERED),
    )
    with using_session("t-1"), traced.start_as_current_span("agent") as agent:
        agent.set_attributes(get_span_kind_attributes("agent"))
        agent.set_attributes(get_input_attributes({"q": ASKED}))
        agent.set_attributes(get_output_attributes({"a": ANSWERED}))
        with traced.start_as_current_span("model") as model:
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
        with traced.start_as_current_span("tool") as tool:
            tool.set_attributes(get_span_kind_attributes("tool"))
            failing(tool)


def failing(span: Any) -> None:
    span.record_exception(ValueError("nothing found"))
    span.set_status(StatusCode.ERROR, "nothing found")


def told_by(
    tracer: Tracer, agent: dict[str, Any], model: dict[str, Any], tool: dict[str, Any]
) -> None:
    with tracer.start_as_current_span("agent", attributes=agent):
        with tracer.start_as_current_span("model", attributes=model):
            pass
        with tracer.start_as_current_span("tool", attributes=tool) as span:
            failing(span)


NUMBERED = {
    "gen_ai.system": "openai",
    "gen_ai.request.model": "gpt-4o",
    "gen_ai.request.temperature": 0.5,
    "gen_ai.prompt.0.role": "user",
    "gen_ai.prompt.0.content": ASKED,
    "gen_ai.completion.0.role": "assistant",
    "gen_ai.completion.0.content": ANSWERED,
    "gen_ai.usage.prompt_tokens": 10,
    "gen_ai.usage.completion_tokens": 1,
}
"""A model's call as the first conventions told it, each message by its number."""


def old_genai(tracer: Tracer) -> None:
    told_by(
        tracer,
        {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.conversation.id": "t-1",
            "gen_ai.prompt": json.dumps({"q": ASKED}),
            "gen_ai.completion": json.dumps({"a": ANSWERED}),
        },
        {
            "gen_ai.operation.name": "chat",
            **NUMBERED,
        },
        {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "tool"},
    )


def new_genai(tracer: Tracer) -> None:
    def said(role: str, text: str) -> str:
        return json.dumps([{"role": role, "parts": [{"type": "text", "content": text}]}])

    told_by(
        tracer,
        {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.conversation.id": "t-1",
            "gen_ai.input.messages": said("user", ASKED),
            "gen_ai.output.messages": said("assistant", ANSWERED),
        },
        {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "openai",
            "gen_ai.request.model": "gpt-4o",
            "gen_ai.request.temperature": 0.5,
            "gen_ai.input.messages": said("user", ASKED),
            "gen_ai.output.messages": said("assistant", ANSWERED),
            "gen_ai.usage.input_tokens": 10,
            "gen_ai.usage.output_tokens": 1,
        },
        {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.call.arguments": '{"q": "x"}'},
    )


def traceloop(tracer: Tracer) -> None:
    told_by(
        tracer,
        {
            "traceloop.span.kind": "workflow",
            "traceloop.entity.name": "agent",
            "traceloop.association.properties.session_id": "t-1",
            "traceloop.entity.input": json.dumps({"q": ASKED}),
            "traceloop.entity.output": json.dumps({"a": ANSWERED}),
        },
        {
            "llm.request.type": "chat",
            **NUMBERED,
            "llm.usage.total_tokens": 11,
        },
        {"traceloop.span.kind": "tool", "traceloop.entity.name": "tool"},
    )


def langsmith(tracer: Tracer) -> None:
    messages = [{"role": "user", "content": ASKED}, {"role": "assistant", "content": ANSWERED}]
    usage = {"input_tokens": 10, "output_tokens": 1, "total_tokens": 11}
    told_by(
        tracer,
        {
            "langsmith.span.kind": "chain",
            "langsmith.metadata.thread_id": "t-1",
            "gen_ai.prompt": json.dumps({"q": ASKED}),
            "gen_ai.completion": json.dumps({"a": ANSWERED}),
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
    "openinference": openinference,
    "old genai": old_genai,
    "new genai": new_genai,
    "traceloop": traceloop,
    "langsmith": langsmith,
}


@pytest.mark.parametrize("wire", ["protobuf", "protobuf+gzip", "json", "json+gzip"])
@pytest.mark.parametrize("convention", CONVENTIONS)
def test_a_trace_is_one_correct_tree(live: Live, convention: str, wire: str) -> None:
    project = f"otel {uuid.uuid4()}"
    provider = TracerProvider(resource=Resource({"service.name": "agent"}))
    provider.add_span_processor(SimpleSpanProcessor(exporter(live, project, wire)))

    CONVENTIONS[convention](provider.get_tracer("app"))
    provider.shutdown()

    agent, model, tool = tree_of(live, project)
    assert (agent.run_type, model.run_type, tool.run_type) == ("chain", "llm", "tool")
    assert (agent.status, model.status, tool.status) == ("success", "success", "error")
    assert "nothing found" in (tool.error or "")
    assert agent.id == agent.trace_id
    assert ASKED in json.dumps(agent.inputs)
    assert ANSWERED in json.dumps(agent.outputs)
    assert ASKED in json.dumps(model.inputs)
    assert ANSWERED in json.dumps(model.outputs)
    assert (model.prompt_tokens, model.completion_tokens, model.total_tokens) == (10, 1, 11)
    assert (agent.total_tokens, str(agent.total_cost)) == (11, "0.000035")
    metadata = (model.extra or {})["metadata"]
    assert (metadata["ls_provider"], metadata["ls_model_name"]) == ("openai", "gpt-4o")
    assert (model.extra or {})["invocation_params"]["temperature"] == 0.5
    with reading(live) as reader:
        (turn,) = reader.read_thread(thread_id="t-1", project_name=project)
    assert turn.id == agent.id


@pytest.mark.parametrize("wire", ["protobuf", "json"])
def test_a_trace_is_split_over_requests(live: Live, wire: str) -> None:
    """Forty leaves, two spans a request; the root, which ends last, comes with the last one."""
    project = f"otel {uuid.uuid4()}"
    provider = TracerProvider()
    provider.add_span_processor(
        BatchSpanProcessor(exporter(live, project, wire), max_export_batch_size=2)
    )
    tracer = provider.get_tracer("app")

    with tracer.start_as_current_span("root"):
        for branch in range(4):
            with tracer.start_as_current_span(f"branch {branch}"):
                for leaf in range(10):
                    tracer.start_span(f"leaf {branch}.{leaf}").end()
    assert provider.force_flush()
    provider.shutdown()

    runs = tree_of(live, project)
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
def reading(live: Live) -> Iterator[Client]:
    client = Client(api_url=live.api_url, api_key=live.api_key)
    yield client
    client.cleanup()


def tree_of(live: Live, project: str) -> list[Any]:
    """All runs of the project, depth first."""
    with reading(live) as reader:
        return sorted(
            reader.list_runs(project_name=project), key=lambda run: run.dotted_order or ""
        )
