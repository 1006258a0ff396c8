"""Writes a query of runs from words by a model; the answer is checked by the query's parser."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from apps.core.callers import Caller
from apps.playground.errors import QueryNotWritten
from apps.playground.services.completion import complete, prepare_text
from apps.providers.catalogue import PROVIDERS
from apps.providers.chat import ChatMessage, ChatRequest, ModelSettings
from apps.providers.client import PreparedCall, find_keys
from apps.providers.errors import NoProviderKey
from apps.trace_store.errors import FilterError
from apps.trace_store.filters.formatting import format_filter
from apps.trace_store.filters.query_fields import QUERY_FIELDS
from apps.trace_store.filters.query_text import parse_query

MAX_ATTEMPTS = 2
MAX_WORDS_LENGTH = 2000
_SMALL_MODELS = {
    "openai": "gpt-4.1-mini",
    "anthropic": "claude-haiku-4-5",
    "google": "gemini-2.5-flash",
}
_INSTRUCTION = """\
Translate the request into one query of traced runs. Reply with the query alone, on one line.

A clause is field:value. A space means AND; OR, NOT or a leading - , and parentheses combine
clauses. Comparisons: latency:>2s, tokens:>=400, cost:<$0.01, latency:1s..5s. Text: name:desk*
(prefix), name:*desk*, error:~timeout (contains the word), field:* (has a value), "two words". One
of several: tag:(a OR b). Bare words search inputs, outputs, errors and names. Durations: 500ms, 2s,
1h. Times: 2h (ago), 2026-01-31.

Fields:
{fields}
{keys}
It is now {now}.

Request: failed calls of gpt-4.1 slower than two seconds
Query: status:error model:gpt-4.1 latency:>2s"""


@dataclass(frozen=True, slots=True)
class WrittenQuery:
    query: str
    """In the language of the query bar."""
    filter: str
    """In the language of the API."""


def choose_model(caller: Caller) -> ModelSettings:
    """A small model of the first provider with a key. Raises `NoProviderKey`."""
    keys = find_keys(caller.workspace_id)
    for provider_id, name in _SMALL_MODELS.items():
        if provider_id in keys:
            return ModelSettings(provider_id, name)
    raise NoProviderKey(
        "The workspace has no key of a model provider.",
        [{"provider": name, "secret": PROVIDERS[name].key_name} for name in _SMALL_MODELS],
    )


def prepare_query(
    caller: Caller, words: str, model: ModelSettings, feedback_keys: Sequence[str] = ()
) -> tuple[PreparedCall, ChatRequest]:
    """Prepare the call in a thread. Raises the errors of `prepare_call`."""
    fields = "\n".join(_describe_fields())
    keys = f"Feedback keys: {', '.join(feedback_keys)}" if feedback_keys else ""
    now = datetime.now(UTC).isoformat(timespec="minutes")
    chat = ChatRequest(
        model,
        [
            ChatMessage("system", _INSTRUCTION.format(fields=fields, keys=keys, now=now)),
            ChatMessage("human", words),
        ],
    )
    return prepare_text(caller, chat), chat


def _describe_fields() -> list[str]:
    return [
        f"- {field.name} ({field.kind})"
        + (f": {', '.join(field.values)}" if field.values else "")
        + (f", such as {field.example}" if field.example else "")
        for field in QUERY_FIELDS
    ]


async def write_query(call: PreparedCall, chat: ChatRequest) -> WrittenQuery:
    """Let the model write the query, once more if it is not valid.

    Raises `QueryNotWritten`, and the errors of `complete`.
    """
    text = ""
    for _ in range(MAX_ATTEMPTS):
        execution = await complete(call)
        text = _clean(execution.reply.text)
        try:
            expression = parse_query(text).expression
        except FilterError as error:
            problem = f"This query is not valid: {error.detail} Write it again, alone."
        else:
            if expression is not None:
                return WrittenQuery(text, format_filter(expression))
            problem = "The query is empty. Write it again, alone."
        messages = [*chat.messages, ChatMessage("ai", text or "-"), ChatMessage("human", problem)]
        chat = ChatRequest(chat.model, messages)
        call = call.with_chat(chat)
    raise QueryNotWritten(f"The model wrote no valid query: {text:.200}")


def _clean(text: str) -> str:
    """The query without the marks that models put around code."""
    lines = [line.strip() for line in text.strip().splitlines()]
    lines = [line for line in lines if line and not line.startswith("```")]
    line = lines[0] if lines else ""
    return line.removeprefix("Query:").strip().strip("`").strip()
