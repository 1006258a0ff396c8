"""The names under which libraries and providers report token counts and costs, as one table.

The same table reads attributes of spans and usage objects in outputs. A field is a total (`input`,
`output`, `total`), a cost, or `side:kind` for a part of a side. `extra:input` is a part that the
named total does not contain, `cached:kind` the cached part of a modality. `known` is a name that
adds nothing to the others, such as the part that was not cached.

To add a library: read its source, add a row with the version, and a case to
`tests/field/test_usage.py`. The ingest log lists the names that no row has.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

CACHE_READ: Final = "cache_read"
CACHE_WRITE: Final = "cache_creation"
REASONING: Final = "reasoning"

_INPUT, _OUTPUT, _TOTAL, _KNOWN = "input", "output", "total", "known"
_READ, _WRITE = f"input:{CACHE_READ}", f"input:{CACHE_WRITE}"
_WRITE_5M = "input:ephemeral_5m_input_tokens"
_WRITE_1H = "input:ephemeral_1h_input_tokens"
_THOUGHT = f"output:{REASONING}"
COSTS: Final = frozenset({"input_cost", "output_cost", "total_cost"})


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The names of one library or provider."""

    source: str
    """The package and version that the names were read from."""
    names: Mapping[str, str]
    """Field by name; a dotted name is a path in a usage object."""
    prefixes: tuple[str, ...] = ()
    """Prefixes of the names as span attributes; empty for names of outputs only."""
    is_in_outputs: bool = False
    outside: frozenset[str] = frozenset()
    """Names whose count the totals of this vocabulary do not contain, unless a sent total does."""
    complete: frozenset[str] = frozenset()
    """Totals that contain every part, whatever the other names of the object say."""


_OPENAI_CHAT = {
    "prompt_tokens": _INPUT,
    "completion_tokens": _OUTPUT,
    "total_tokens": _TOTAL,
    "prompt_tokens_details.cached_tokens": _READ,
    "prompt_tokens_details.cache_write_tokens": _WRITE,
    "prompt_tokens_details.cache_creation_tokens": _WRITE,
    "prompt_tokens_details.audio_tokens": "input:audio",
    "prompt_tokens_details.image_tokens": "input:image",
    "prompt_tokens_details.text_tokens": _KNOWN,
    "completion_tokens_details.reasoning_tokens": _THOUGHT,
    "completion_tokens_details.audio_tokens": "output:audio",
    "completion_tokens_details.image_tokens": "output:image",
    "completion_tokens_details.text_tokens": _KNOWN,
    "completion_tokens_details.accepted_prediction_tokens": _KNOWN,
    "completion_tokens_details.rejected_prediction_tokens": _KNOWN,
}
_OPENAI_RESPONSES = {
    "input_tokens": _INPUT,
    "output_tokens": _OUTPUT,
    "total_tokens": _TOTAL,
    "input_tokens_details.cached_tokens": _READ,
    "input_tokens_details.cache_write_tokens": _WRITE,
    "input_tokens_details.audio_tokens": "input:audio",
    "input_tokens_details.image_tokens": "input:image",
    "input_tokens_details.text_tokens": _KNOWN,
    "output_tokens_details.reasoning_tokens": _THOUGHT,
    "output_tokens_details.audio_tokens": "output:audio",
    "output_tokens_details.image_tokens": "output:image",
    "output_tokens_details.text_tokens": _KNOWN,
    # The Realtime API.
    "input_token_details.cached_tokens": _READ,
    "input_token_details.audio_tokens": "input:audio",
    "input_token_details.image_tokens": "input:image",
    "input_token_details.text_tokens": _KNOWN,
    "input_token_details.cached_tokens_details.audio_tokens": "cached:audio",
    "input_token_details.cached_tokens_details.image_tokens": "cached:image",
    "input_token_details.cached_tokens_details.text_tokens": _KNOWN,
    "output_token_details.audio_tokens": "output:audio",
    "output_token_details.text_tokens": _KNOWN,
}
_ANTHROPIC = {
    "input_tokens": _INPUT,
    "output_tokens": _OUTPUT,
    "cache_read_input_tokens": _READ,
    "cache_creation_input_tokens": _WRITE,
    "cache_creation.ephemeral_5m_input_tokens": _WRITE_5M,
    "cache_creation.ephemeral_1h_input_tokens": _WRITE_1H,
    "output_tokens_details.thinking_tokens": _THOUGHT,
}
_ANTHROPIC_OUTSIDE = frozenset(name for name in _ANTHROPIC if name.startswith("cache_"))
_BEDROCK = {
    "inputTokens": _INPUT,
    "outputTokens": _OUTPUT,
    "totalTokens": _TOTAL,
    "cacheReadInputTokens": _READ,
    "cacheWriteInputTokens": _WRITE,
    "cacheReadInputTokenCount": _READ,
    "cacheWriteInputTokenCount": _WRITE,
    "cacheDetails.5m": _WRITE_5M,
    "cacheDetails.1h": _WRITE_1H,
    # Metrics of an invocation of an older model.
    "inputTokenCount": _INPUT,
    "outputTokenCount": _OUTPUT,
}
_BEDROCK_OUTSIDE = frozenset(name for name in _BEDROCK if name.startswith("cache"))


def _gemini_names() -> dict[str, str]:
    names = {
        "promptTokenCount": _INPUT,
        "candidatesTokenCount": _OUTPUT,
        "responseTokenCount": _OUTPUT,
        "totalTokenCount": _TOTAL,
        "toolUsePromptTokenCount": "extra:input",
        "cachedContentTokenCount": _READ,
        "thoughtsTokenCount": _THOUGHT,
    }
    for kind in ("text", "audio", "image", "video", "document"):
        is_plain = kind == "text"
        names |= {
            f"promptTokensDetails.{kind}": _KNOWN if is_plain else f"input:{kind}",
            f"cacheTokensDetails.{kind}": _KNOWN if is_plain else f"cached:{kind}",
            f"candidatesTokensDetails.{kind}": _KNOWN if is_plain else f"output:{kind}",
            f"responseTokensDetails.{kind}": _KNOWN if is_plain else f"output:{kind}",
            f"toolUsePromptTokensDetails.{kind}": _KNOWN,
        }
    return names


def _to_snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z])([A-Z])", lambda match: f"_{match[1].lower()}", name)


_GEMINI = _gemini_names()
_GEMINI |= {_to_snake_case(name): target for name, target in _GEMINI.items()}
_AI_SDK = {
    "inputTokens": _INPUT,
    "inputTokenDetails.noCacheTokens": _KNOWN,
    "inputTokenDetails.cacheReadTokens": _READ,
    "inputTokenDetails.cacheWriteTokens": _WRITE,
    "outputTokens": _OUTPUT,
    "outputTokenDetails.textTokens": _KNOWN,
    "outputTokenDetails.reasoningTokens": _THOUGHT,
    "totalTokens": _TOTAL,
    "reasoningTokens": _THOUGHT,
    "cachedInputTokens": _READ,
    # The usage of a language model of specification V3.
    "inputTokens.total": _INPUT,
    "inputTokens.noCache": _KNOWN,
    "inputTokens.cacheRead": _READ,
    "inputTokens.cacheWrite": _WRITE,
    "outputTokens.total": _OUTPUT,
    "outputTokens.text": _KNOWN,
    "outputTokens.reasoning": _THOUGHT,
}
_PYDANTIC_DETAILS = {
    "cache_read_tokens": _READ,
    "cache_write_tokens": _WRITE,
    "cache_write_1h_tokens": _WRITE_1H,
    "input_audio_tokens": "input:audio",
    "output_audio_tokens": "output:audio",
    "cache_audio_read_tokens": "cached:audio",
    "reasoning_tokens": _THOUGHT,
    "thoughts_tokens": _THOUGHT,
    "thinking_tokens": _THOUGHT,
    "cached_content_tokens": _READ,
    "cached_tokens": _READ,
    "tool_use_prompt_tokens": _KNOWN,
    "accepted_prediction_tokens": _KNOWN,
    "rejected_prediction_tokens": _KNOWN,
    "audio_tokens": _KNOWN,
    "audio_prompt_tokens": "input:audio",
    "image_prompt_tokens": "input:image",
    "video_prompt_tokens": "input:video",
    "audio_candidates_tokens": "output:audio",
    "image_candidates_tokens": "output:image",
    "audio_cache_tokens": "cached:audio",
    "image_cache_tokens": "cached:image",
    "video_cache_tokens": "cached:video",
    "text_prompt_tokens": _KNOWN,
    "text_candidates_tokens": _KNOWN,
    "text_cache_tokens": _KNOWN,
    "text_tool_use_prompt_tokens": _KNOWN,
    # The names of Anthropic's API; `input_tokens` contains them here.
    "cache_read_input_tokens": _READ,
    "cache_creation_input_tokens": _WRITE,
    "input_tokens": _KNOWN,
    "output_tokens": _KNOWN,
}

VOCABULARIES: Final = (
    Vocabulary(
        "opentelemetry-semantic-conventions 0.66b2",
        {
            "input_tokens": _INPUT,
            "prompt_tokens": _INPUT,
            "output_tokens": _OUTPUT,
            "completion_tokens": _OUTPUT,
            "cache_read.input_tokens": _READ,
            "cache_creation.input_tokens": _WRITE,
            "reasoning.output_tokens": _THOUGHT,
        },
        ("gen_ai.usage.",),
    ),
    Vocabulary(
        "langsmith 0.15.0 (OpenTelemetry exporter)",
        {
            "total_tokens": _TOTAL,
            "input_token_details": _KNOWN,
            "output_token_details": _KNOWN,
        },
        ("gen_ai.usage.",),
    ),
    Vocabulary(
        "langsmith 0.15.0 and langchain-core 1.7.2 (usage_metadata)",
        {
            "input_tokens": _INPUT,
            "output_tokens": _OUTPUT,
            "total_tokens": _TOTAL,
            **{cost: cost for cost in sorted(COSTS)},
        },
        is_in_outputs=True,
    ),
    Vocabulary(
        "opentelemetry-semantic-conventions-ai 0.5.1 (OpenLLMetry)",
        {
            "prompt_tokens": _INPUT,
            "completion_tokens": _OUTPUT,
            "total_tokens": _TOTAL,
            "cache_read_input_tokens": _READ,
            "cache_creation_input_tokens": _WRITE,
            "reasoning_tokens": _THOUGHT,
            "token_type": _KNOWN,
        },
        ("gen_ai.usage.", "llm.usage."),
    ),
    Vocabulary(
        "openinference-semantic-conventions 0.1.42",
        {
            "token_count.prompt": _INPUT,
            "token_count.completion": _OUTPUT,
            "token_count.total": _TOTAL,
            "token_count.prompt_details.cache_read": _READ,
            "token_count.prompt_details.cache_input": _READ,
            "token_count.prompt_details.cache_write": _WRITE,
            "token_count.prompt_details.audio": "input:audio",
            "token_count.completion_details.reasoning": _THOUGHT,
            "token_count.completion_details.audio": "output:audio",
            "cost.prompt": "input_cost",
            "cost.completion": "output_cost",
            "cost.total": "total_cost",
        },
        ("llm.",),
    ),
    Vocabulary("ai 6.0.326 and @ai-sdk/otel 1.0.173", _AI_SDK, ("ai.usage.",), is_in_outputs=True),
    Vocabulary(
        "ai 5.0.277",
        {"promptTokens": _INPUT, "completionTokens": _OUTPUT, "tokens": _INPUT},
        ("ai.usage.",),
        is_in_outputs=True,
    ),
    Vocabulary("pydantic-ai-slim 2.68.0", _PYDANTIC_DETAILS, ("gen_ai.usage.details.",)),
    Vocabulary(
        "pydantic-ai-slim 1 (as reported in langfuse#12306)",
        {"cache_read_tokens": _READ, "cache_write_tokens": _WRITE},
        ("gen_ai.usage.",),
    ),
    Vocabulary(
        "google-adk 1 (as reported in langfuse#12306)",
        {"cached_tokens": _READ},
        ("gen_ai.usage.",),
    ),
    Vocabulary(
        "google-adk 1.39.1 and 2.13.0",
        {
            "experimental.reasoning_tokens": _THOUGHT,
            "experimental.reasoning_tokens_limit": _KNOWN,
            "experimental.system_instruction_tokens": _KNOWN,
        },
        ("gen_ai.usage.",),
    ),
    Vocabulary("strands-agents 1.62.0", {"cache_write_input_tokens": _WRITE}, ("gen_ai.usage.",)),
    Vocabulary(
        "sentry-sdk 2.75.0",
        {
            "input_tokens.cached": _READ,
            "input_tokens.cache_write": _WRITE,
            "output_tokens.reasoning": _THOUGHT,
        },
        ("gen_ai.usage.",),
    ),
    Vocabulary(
        "openlit 1.45.0",
        {
            "prompt_tokens_details.cached_tokens": _READ,
            "prompt_tokens_details.cache_creation_tokens": _WRITE,
            "completion_tokens_details.reasoning_tokens": _THOUGHT,
            "completion_tokens_details.audio_tokens": "output:audio",
            "cost": "total_cost",
        },
        ("gen_ai.usage.",),
    ),
    Vocabulary(
        "Claude Code 2.1 (events)",
        {
            "input_tokens": _INPUT,
            "output_tokens": _OUTPUT,
            "cache_read_tokens": _READ,
            "cache_creation_tokens": _WRITE,
        },
        ("",),
        outside=frozenset({"cache_read_tokens", "cache_creation_tokens"}),
    ),
    Vocabulary(
        "openai 2 (chat), litellm 1.110.2, langchain-openai 1.7.4",
        _OPENAI_CHAT
        | {
            # DeepSeek and xAI.
            "prompt_cache_hit_tokens": _READ,
            "prompt_cache_miss_tokens": _KNOWN,
            "reasoning_tokens": _THOUGHT,
            "cached_prompt_text_tokens": _READ,
            # OpenRouter.
            "cost": "total_cost",
        },
        is_in_outputs=True,
        complete=frozenset({"prompt_tokens"}),
    ),
    Vocabulary("openai 2 (responses)", _OPENAI_RESPONSES, is_in_outputs=True),
    Vocabulary(
        "langchain-anthropic 1.7.10 (Anthropic's API)",
        _ANTHROPIC,
        is_in_outputs=True,
        outside=_ANTHROPIC_OUTSIDE,
    ),
    Vocabulary(
        "langchain-aws 1.9.1 (Bedrock's API)",
        _BEDROCK,
        is_in_outputs=True,
        outside=_BEDROCK_OUTSIDE,
    ),
    Vocabulary(
        "langchain-google-genai 4.4.3 (Gemini's API)",
        _GEMINI,
        is_in_outputs=True,
        outside=frozenset({"thoughtsTokenCount", "thoughts_token_count"}),
    ),
    Vocabulary(
        "genai-prices 0.2.3 (Cohere's API)",
        {
            "tokens.input_tokens": _INPUT,
            "tokens.output_tokens": _OUTPUT,
            "billed_units.input_tokens": _INPUT,
            "billed_units.output_tokens": _OUTPUT,
            "cached_tokens": _READ,
        },
        is_in_outputs=True,
    ),
    Vocabulary(
        "Ollama's API",
        {"prompt_eval_count": _INPUT, "eval_count": _OUTPUT},
        is_in_outputs=True,
    ),
)


@dataclass(frozen=True, slots=True)
class NameRule:
    """What a name means; of several names of one field, the lowest rank is used."""

    target: str
    rank: int
    vocabulary: Vocabulary
    is_outside: bool = False
    is_complete: bool = False
    side: str = field(init=False)
    kind: str = field(init=False)

    def __post_init__(self) -> None:
        side, _, kind = self.target.partition(":")
        object.__setattr__(self, "side", side)
        object.__setattr__(self, "kind", kind)


def _index_names(*, in_outputs: bool) -> dict[str, NameRule]:
    rules: dict[str, NameRule] = {}
    for vocabulary in VOCABULARIES:
        output_prefixes = ("",) if vocabulary.is_in_outputs else ()
        for prefix in output_prefixes if in_outputs else vocabulary.prefixes:
            for name, target in vocabulary.names.items():
                rule = NameRule(
                    target,
                    len(rules),
                    vocabulary,
                    is_outside=name in vocabulary.outside,
                    is_complete=name in vocabulary.complete,
                )
                rules.setdefault(prefix + name, rule)
    return rules


ATTRIBUTE_RULES: Final[Mapping[str, NameRule]] = _index_names(in_outputs=False)
OUTPUT_RULES: Final[Mapping[str, NameRule]] = _index_names(in_outputs=True)
RuleTree = dict[str, "NameRule | RuleTree"]
"""Rules by the names of a path."""


def _build_tree() -> RuleTree:
    tree: RuleTree = {}
    for path, rule in OUTPUT_RULES.items():
        *parents, name = path.split(".")
        node = tree
        for parent in parents:
            inner = node.get(parent)
            if not isinstance(inner, dict):
                inner = node[parent] = {} if inner is None else {"": inner}
            node = inner
        if isinstance(inner := node.get(name), dict):
            inner[""] = rule
        else:
            node[name] = rule
    return tree


OUTPUT_TREE: Final = _build_tree()
"""`OUTPUT_RULES` as a tree. A name with a value and a path below it has the value's rule at ``."""

ALIASES: Final[Mapping[str, str]] = {
    "cache_write": CACHE_WRITE,
    "cached": CACHE_READ,
    "cached_tokens": CACHE_READ,
    "ephemeral_1hr_input_tokens": "ephemeral_1h_input_tokens",  # langsmith 0.12.0 (JavaScript)
    "reasoning_tokens": REASONING,
    "audio_tokens": "audio",
}
"""Other names of a kind in `usage_metadata` and in price entries."""
CACHE_LIFETIMES: Final = ("ephemeral_5m_input_tokens", "ephemeral_1h_input_tokens")
"""Kinds that `cache_creation` may contain."""
SCOPES_WITH_CACHE_OUTSIDE: Final = frozenset({"opentelemetry.instrumentation.bedrock"})
"""OpenLLMetry's instrumentation of Bedrock (0.62.4) reports a total without the cached tokens."""

_LOOKS_LIKE_USAGE = re.compile(
    r"(?:^|[._])usage\.|token_count|_tokens?(?:\.|$)|(?:Tokens?|TokenCount)(?:\.|$)"
)
_LIMIT = re.compile(r"(?i)max|limit|budget|per_second|metadata|aggregated|request\.")


def find_unread_attributes(attributes: Mapping[str, Any]) -> tuple[str, ...]:
    """The names of span attributes that are not in the vocabulary and probably are counts."""
    return tuple(
        name
        for name, value in attributes.items()
        if ("oken" in name or "usage." in name)
        and isinstance(value, int | float)
        and name not in ATTRIBUTE_RULES
        and looks_like_usage(name)
    )


def looks_like_usage(name: str) -> bool:
    """Whether a name that no row has probably is a token count."""
    return _LOOKS_LIKE_USAGE.search(name) is not None and _LIMIT.search(name) is None
