"""The fields of whole threads: of a conversation's figures, its beginning and its end."""

from __future__ import annotations

from apps.trace_store.filters import fields, parsing
from apps.trace_store.filters.fields import Field, Items, Kind
from apps.trace_store.filters.nodes import Expression

_N, _T, _S = Kind.NUMBER, Kind.TEXT, Kind.SECONDS

FIELDS: tuple[Field, ...] = (
    Field("thread_id", _T, "The thread."),
    Field("count", _N, "How many turns it has.", aliases=("turns", "trace_count")),
    Field("num_errored_turns", _N, "How many of them failed.", aliases=("error_count",)),
    Field("min_start_time", Kind.TIME, "When its first turn began.", aliases=("first_start_time",)),
    Field(
        "max_start_time",
        Kind.TIME,
        "When its last turn began.",
        aliases=("last_start_time", "start_time"),
    ),
    Field("last_end_time", Kind.TIME, "When its last turn ended.", aliases=("end_time",)),
    Field("latency_p50", _S, "Half of its turns took as long, or less.", aliases=("latency",)),
    Field("latency_p99", _S, "As latency_p50, of 99 in a hundred."),
    Field("total_tokens", _N, "Of all turns together."),
    Field("prompt_tokens", _N, "As total_tokens."),
    Field("completion_tokens", _N, "As total_tokens."),
    Field("total_cost", _N, "As total_tokens, in US dollars."),
    Field("prompt_cost", _N, "As total_cost."),
    Field("completion_cost", _N, "As total_cost."),
    Field("first_trace_id", Kind.UUID, "Its first turn."),
    Field("last_trace_id", Kind.UUID, "Its last turn.", aliases=("trace_id",)),
    Field("first_inputs", _T, "How the first turn's inputs begin."),
    Field("last_outputs", _T, "How the last turn's outputs begin."),
    Field("last_error", _T, "What went wrong in the last turn; null when nothing did."),
    # Given on the thread, or on any run of it.
    *(one for one in fields.FIELDS if one.items is Items.FEEDBACK),
)
BY_NAME = {name: field for field in FIELDS for name in (field.name, *field.aliases)}


def parse(text: str) -> Expression:
    """What the text asks of a thread; `FilterError` names the column of a mistake."""
    return parsing.parse(text, BY_NAME)
