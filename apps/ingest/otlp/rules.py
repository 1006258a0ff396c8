"""Rules that map span attributes to fields of runs; the first attribute that is set wins.

Conventions: OpenTelemetry's GenAI (old and new), OpenInference, OpenLLMetry (Traceloop), Vercel's
AI SDK, Pydantic AI, Google's ADK, coding agents, and the attributes of the `langsmith` SDKs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

# -- run type, name, project -----------------------------------------------------

RUN_TYPES: Final[Mapping[str, Mapping[str, str]]] = {
    "langsmith.span.kind": {
        kind: kind
        for kind in ("llm", "chain", "tool", "retriever", "embedding", "prompt", "parser")
    },
    "openinference.span.kind": {
        "llm": "llm",
        "chain": "chain",
        "agent": "chain",
        "guardrail": "chain",
        "evaluator": "chain",
        "decision": "chain",
        "tool": "tool",
        "retriever": "retriever",
        "reranker": "retriever",
        "embedding": "embedding",
        "prompt": "prompt",
    },
    "traceloop.span.kind": {
        "workflow": "chain",
        "task": "chain",
        "agent": "chain",
        "tool": "tool",
    },
    "traceloop.llm.request.type": {"embedding": "embedding", "*": "llm"},
    # LiteLLM names the function that was called.
    "llm.request.type": {"embedding": "embedding", "aembedding": "embedding", "*": "llm"},
    "gen_ai.operation.name": {
        "chat": "llm",
        "completion": "llm",
        "text_completion": "llm",
        "generate_content": "llm",
        "embedding": "embedding",
        "embeddings": "embedding",
        "execute_tool": "tool",
        "invoke_agent": "chain",
        "create_agent": "chain",
        "invoke_workflow": "chain",
        "retrieval": "retriever",
        # The exporter of the SDK writes these run types unchanged.
        "chain": "chain",
        "parser": "parser",
        "tool": "tool",
        "llm": "llm",
    },
    "span.type": {"llm_request": "llm", "tool": "tool", "interaction": "chain"},
    "ai.operationId": {
        "ai.generateText.doGenerate": "llm",
        "ai.streamText.doStream": "llm",
        "ai.generateObject.doGenerate": "llm",
        "ai.streamObject.doStream": "llm",
        "ai.toolCall": "tool",
        "ai.embed.doEmbed": "embedding",
        "ai.embedMany.doEmbed": "embedding",
        "*": "chain",
    },
}
"""`*` matches any other value."""
RUN_TYPE_IF_PRESENT: Final = (
    ("gen_ai.tool.name", "tool"),
    ("tool.name", "tool"),
    ("llm.prompt_template.variables", "prompt"),
    # Before the model: agents state the model that they call, in spans of its own.
    ("gen_ai.agent.name", "chain"),
    ("gen_ai.agent.id", "chain"),
    ("gen_ai.request.model", "llm"),
    ("llm.model_name", "llm"),
)

NAME: Final = ("langsmith.trace.name", "traceloop.entity.name")
TOOL_NAME: Final = "tool.name"

PROJECT_ID: Final = ("langsmith.trace.session_id", "ai.telemetry.metadata.ls_project_id")
PROJECT: Final = ("langsmith.trace.session_name", "ai.telemetry.metadata.ls_project_name")
RESOURCE_PROJECT: Final = "langsmith.project.name"
OPENINFERENCE_RESOURCE_PROJECT: Final = "openinference.project.name"

# -- ids of the SDKs, in addition to those of OpenTelemetry ------------------

RUN_ID: Final = "langsmith.span.id"
TRACE_ID: Final = "langsmith.trace.id"
DOTTED_ORDER: Final = "langsmith.span.dotted_order"
PARENT_ID: Final = "langsmith.span.parent_id"
IS_ROOT: Final = "langsmith.is_root"
IS_TRACEABLE: Final = "langsmith.traceable"
PARENT_SPAN: Final = "langsmith.traceable_parent_otel_span_id"

# -- inputs and outputs ------------------------------------------------------

INPUTS: Final = (
    ("gen_ai.prompt", "object"),
    ("gen_ai.prompt.", "messages"),
    ("gen_ai.input.messages", "parts"),
    ("input.value", "input"),
    ("traceloop.entity.input", "input"),
    ("llm.input_messages", "list"),
    ("llm.input_messages.", "messages"),
    ("ai.prompt.messages", "list"),
    ("ai.prompt", "input"),
    ("ai.value", "value"),
    ("ai.values", "values"),
    ("prompt", "input"),
    ("events", "input_events"),
    ("gcp.vertex.agent.llm_request", "input"),
    ("user_prompt", "input"),
    ("tool_arguments", "input"),
    ("gen_ai.tool.call.arguments", "input"),
    ("gen_ai.tool.arguments", "input"),
    ("gcp.vertex.agent.tool_call_args", "input"),
    ("ai.toolCall.args", "input"),
    ("ai.toolCall.input", "input"),
    ("tool_input", "input"),
    ("tool.parameters", "input"),
    ("tool_parameters", "input"),
    ("gen_ai.retrieval.query.text", "query"),
    ("embedding.embeddings.", "embeddings"),
    ("llm.prompts", "prompts"),
    ("llm.prompts.", "prompts"),
    ("input.documents.", "documents"),
    ("gen_ai.task.input", "input"),
    ("mcp.request.argument", "input"),
    ("llm.prompt_template.variables", "input"),
    ("pydantic_ai.all_messages", "messages_before_answer"),
)
"""Attribute, or prefix of a flattened array, and its form: a key of `payloads.CONVERTERS`."""
OUTPUTS: Final = (
    ("gen_ai.completion", "object"),
    ("gen_ai.completion.", "messages"),
    ("gen_ai.output.messages", "parts"),
    ("output.value", "output"),
    ("traceloop.entity.output", "output"),
    ("llm.output_messages", "list"),
    ("llm.output_messages.", "messages"),
    ("final_result", "output"),
    ("pydantic_ai.all_messages", "parts"),
    ("all_messages_events", "input_events"),
    ("events", "output_events"),
    ("ai.response.object", "output"),
    ("ai.embedding", "embedding"),
    ("ai.embeddings", "embedding_list"),
    ("ai.response.text", "answer"),
    ("ai.response.toolCalls", "answer"),
    ("gcp.vertex.agent.llm_response", "output"),
    ("gen_ai.tool.call.result", "output"),
    ("gcp.vertex.agent.tool_response", "output"),
    ("tool_response", "output"),
    ("ai.toolCall.result", "output"),
    ("ai.toolCall.output", "output"),
    ("response.model_output", "output"),
    ("gen_ai.retrieval.documents", "documents"),
    ("retrieval.documents.", "documents"),
    ("reranker.output_documents.", "documents"),
    ("output.documents.", "documents"),
    ("llm.choices.", "prompts"),
    ("gen_ai.task.output", "output"),
    ("mcp.response.value", "output"),
)
PAYLOAD_ATTRIBUTES: Final = frozenset(name for name, _ in (*INPUTS, *OUTPUTS))
"""Attributes with inputs or outputs; they never become metadata, even if unused."""
PARTIAL_FORMS: Final = frozenset({"messages_before_answer", "input_events", "output_events"})
"""Forms that use only a part of the value; the attribute is kept as well."""
FLATTENED: Final = tuple(
    {name for name, _ in (*INPUTS, *OUTPUTS) if name.endswith(".")}
    | {"llm.tools.", "llm.request.functions.", "langsmith.metadata."}
    | {"traceloop.association.properties.", "ai.telemetry.metadata."}
)
SYSTEM_INSTRUCTIONS: Final = "gen_ai.system_instructions"
MIME_TYPES: Final = ("input.mime_type", "output.mime_type")

# -- parameters --------------------------------------------------------------

PARAMETERS: Final[Mapping[str, tuple[str, ...]]] = {
    "model": (
        "gen_ai.response.model",
        "gen_ai.request.model",
        "llm.response.model_name",
        "llm.model_name",
        "llm.request.model_name",
        "embedding.model_name",
        "reranker.model_name",
        "ai.response.model",
        "ai.model.id",
    ),
    "temperature": ("gen_ai.request.temperature", "llm.temperature"),
    "top_p": ("gen_ai.request.top_p", "llm.top_p"),
    "top_k": ("gen_ai.request.top_k", "llm.top_k"),
    "max_tokens": ("gen_ai.request.max_tokens", "gen_ai.request.max_completion_tokens"),
    "frequency_penalty": (
        "gen_ai.request.frequency_penalty",
        "llm.frequency_penalty",
        "llm.request.frequency_penalty",
    ),
    "presence_penalty": (
        "gen_ai.request.presence_penalty",
        "llm.presence_penalty",
        "llm.request.presence_penalty",
    ),
    "seed": ("gen_ai.request.seed", "gen_ai.openai.request.seed"),
    "stop": ("gen_ai.request.stop_sequences", "llm.chat.stop_sequences"),
    "n": ("gen_ai.request.choice.count", "gen_ai.request.n"),
    "encoding_formats": ("gen_ai.request.encoding_formats",),
    "stream": ("gen_ai.request.stream", "gen_ai.is_streaming", "llm.is_streaming"),
    "tool_name": ("gen_ai.tool.name",),
    "tool_call_id": ("gen_ai.tool.call.id",),
    "tools": ("gen_ai.tool.definitions", "tools"),
    "service_tier": ("gen_ai.openai.request.service_tier",),
    "reasoning_effort": ("gen_ai.request.reasoning_effort", "llm.request.reasoning_effort"),
    "response_format": ("gen_ai.request.structured_output_schema",),
}
PARAMETER_OBJECTS: Final = ("llm.invocation_parameters", "embedding.invocation_parameters")
TOOL_LISTS: Final = ("llm.tools.", "llm.request.functions.")

# -- metadata ----------------------------------------------------------------

PROVIDER: Final = ("gen_ai.provider.name", "gen_ai.system", "llm.provider", "llm.system")
PROVIDER_NAMES: Final[Mapping[str, str]] = {
    "gcp.gemini": "google_genai",
    "gcp.gen_ai": "google_genai",
    "gcp.vertex_ai": "google_vertexai",
    "gemini": "google_genai",
    "vertex_ai": "google_vertexai",
    "mistral_ai": "mistralai",
    "mistral_ai.chat": "mistralai",
    "aws.bedrock": "amazon_bedrock",
    "az.ai.openai": "azure",
    "azure.ai.openai": "azure",
    "azure.ai.inference": "azure",
    "az.ai.inference": "azure",
    "x_ai": "xai",
    "together_ai": "together",
}
"""Provider names of the conventions, and the equivalent `ls_provider`."""
MODEL: Final = PARAMETERS["model"]
THREAD: Final = ("session.id", "thread.id", "gen_ai.conversation.id", "session_id")
METADATA_OBJECT: Final = "metadata"
METADATA_PREFIXES: Final = (
    "langsmith.metadata.",
    "traceloop.association.properties.",
    "ai.telemetry.metadata.",
)
TAGS: Final = ("langsmith.span.tags", "tag.tags")
REFERENCE_EXAMPLE: Final = ("langsmith.reference_example_id",)
RUNTIME: Final = "langsmith.span.runtime"
EXTRA: Final = {
    "langsmith.request.streaming": "streaming",
    "langsmith.request.headers": "headers",
}

# -- usage -------------------------------------------------------------------

# The names of counts and costs are in `apps/ingest/token_usage/vocabulary.py`.
USAGE_OBJECT: Final = ("langsmith.usage_metadata", "langsmith.metadata.usage_metadata")
USAGE_DETAIL_OBJECTS: Final = {
    "gen_ai.usage.input_token_details": "input_token_details",
    "gen_ai.usage.output_token_details": "output_token_details",
}
FIRST_TOKEN: Final[Mapping[str, float]] = {
    "gen_ai.response.time_to_first_chunk": 1e9,
    "gen_ai.server.time_to_first_token": 1e9,
    "ai.response.msToFirstChunk": 1e6,
    "ttft_ms": 1e6,
}
"""Time from the start of the span to the first token, and its unit in nanoseconds."""
FIRST_TOKEN_EVENT: Final = "First Token Stream Event"  # noqa: S105  (no password)
"""The event that OpenInference instrumentations add when the first token arrives."""

# -- index -------------------------------------------------------------------

NAME_LISTS: Final = (
    NAME,
    TAGS,
    THREAD,
    PROVIDER,
    MODEL,
    *PARAMETERS.values(),
)
RULES_BY_NAME: Final[Mapping[str, frozenset[str]]] = {
    name: frozenset(names[0] for names in NAME_LISTS if name in names)
    for names in NAME_LISTS
    for name in names
}
"""The rules of a name, each identified by its first name. Most rules do not apply to a span."""
