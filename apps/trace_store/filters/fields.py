"""The fields of filters, as tables."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class FieldType(StrEnum):
    """The type of a field, which decides its operators: see `OPERATORS`."""

    UUID = "an id"
    TEXT = "a text"
    NUMBER = "a number"
    SECONDS = "a duration"
    TIME = "a time"
    BOOLEAN = "true or false"
    TEXTS = "texts"
    OBJECT = "an object"
    CONTENT = "content"


class ItemKind(StrEnum):
    """Items of which a run has several. Adjacent conditions on one kind match the same item."""

    METADATA = "metadata"
    INPUTS = "inputs"
    OUTPUTS = "outputs"
    FEEDBACK = "feedback"


@dataclass(frozen=True, slots=True)
class Field:
    name: str
    kind: FieldType = field(repr=False)
    about: str = field(repr=False)
    aliases: tuple[str, ...] = field(default=(), repr=False)
    items: ItemKind | None = field(default=None, repr=False)
    """The items that the field belongs to; None for a field of the run."""
    is_searched: bool = field(default=False, repr=False)
    """Whether `search(field, "words")` is supported."""
    is_word: bool = field(default=False, repr=False)
    """Whether the values are an enumeration in lower case; filters may use any case."""
    is_json: bool = field(default=False, repr=False)
    """Whether the values are JSON; a numeric literal in an ordering then matches only numbers."""


_EQUALITY = ("eq", "neq", "in", "is_null", "is_not_null")
_ORDER = ("gt", "gte", "lt", "lte")
_PATTERNS = ("like", "ilike", "nlike", "not_like")

OPERATORS: dict[FieldType, tuple[str, ...]] = {
    FieldType.UUID: _EQUALITY,
    FieldType.TEXT: (*_EQUALITY, *_ORDER, *_PATTERNS),
    FieldType.NUMBER: (*_EQUALITY, *_ORDER),
    FieldType.SECONDS: (*_EQUALITY, *_ORDER),
    FieldType.TIME: (*_EQUALITY, *_ORDER),
    FieldType.BOOLEAN: _EQUALITY,
    FieldType.TEXTS: ("has", *_EQUALITY, *_PATTERNS),
    FieldType.OBJECT: ("has", "exists", "search", "is_null", "is_not_null"),
    FieldType.CONTENT: ("search", "is_null", "is_not_null"),
}

ALL_CONTENT = Field(
    "", FieldType.CONTENT, "All searched content of the run: what `search(text)` means."
)

_T, _N, _I = FieldType.TEXT, FieldType.NUMBER, FieldType.UUID
_META, _IN, _OUT, _FEED = ItemKind.METADATA, ItemKind.INPUTS, ItemKind.OUTPUTS, ItemKind.FEEDBACK

FIELDS: tuple[Field, ...] = (
    Field("id", _I, "The run's id.", aliases=("run_id",)),
    Field("trace_id", _I, "The id of the root of the run's trace."),
    Field("parent_run_id", _I, "Null for a root.", aliases=("parent_run",)),
    Field("session_id", _I, "The project.", aliases=("project_id",)),
    Field("reference_example_id", _I, "The dataset's example.", aliases=("reference_example",)),
    Field("reference_dataset_id", _I, "The dataset that the project is an experiment on."),
    Field("name", _T, "The run's name.", is_searched=True),
    Field(
        "run_type", _T, "chain, llm, tool, retriever, embedding, prompt or parser.", is_word=True
    ),
    Field("status", _T, "success, error or pending.", is_word=True),
    Field("error", _T, "What went wrong; null when nothing did.", is_searched=True),
    Field("thread_id", _T, "The thread that the metadata names."),
    Field("dotted_order", _T, "The place in the trace, as it was sent."),
    Field("model", _T, "The model that was called.", aliases=("model_name",)),
    Field("is_root", FieldType.BOOLEAN, "Whether the run has no parent."),
    Field("execution_order", _N, "1 for a root, 2 for the runs below it, and so on."),
    Field("start_time", FieldType.TIME, "When the run began."),
    Field("end_time", FieldType.TIME, "When it ended; null until then."),
    Field("first_token_time", FieldType.TIME, "When a model's first token came."),
    Field("latency", FieldType.SECONDS, "From beginning to end; null until the end."),
    Field(
        "first_token_latency",
        FieldType.SECONDS,
        "From beginning to first token.",
        aliases=("time_to_first_token", "first_token"),
    ),
    Field("total_tokens", _N, "Of a model's call its own, else the sum below the run."),
    Field("prompt_tokens", _N, "As total_tokens."),
    Field("completion_tokens", _N, "As total_tokens."),
    Field("total_cost", _N, "As total_tokens, in US dollars."),
    Field("prompt_cost", _N, "As total_cost."),
    Field("completion_cost", _N, "As total_cost."),
    Field("tags", FieldType.TEXTS, "The run's tags.", aliases=("tag",)),
    Field("metadata", FieldType.OBJECT, "The run's metadata as a whole."),
    Field("inputs", FieldType.CONTENT, "What went in; null when nothing or an empty object did."),
    Field("outputs", FieldType.CONTENT, "What came out; null when nothing or an empty object did."),
    Field("metadata_key", _T, "A key of the metadata.", items=_META),
    Field("metadata_value", _T, "Its value.", items=_META, is_json=True),
    Field("input_key", _T, "A path in the inputs: keys with dots, no list indexes.", items=_IN),
    Field("input_value", _T, "The text, number or boolean there.", items=_IN, is_json=True),
    Field("output_key", _T, "As input_key, of the outputs.", items=_OUT),
    Field("output_value", _T, "As input_value, of the outputs.", items=_OUT, is_json=True),
    Field("feedback_key", _T, "The key of a feedback.", items=_FEED),
    Field("feedback_score", _N, "Its score.", items=_FEED),
    Field("feedback_value", _T, "Its value.", items=_FEED, is_json=True),
    Field("feedback_comment", _T, "Its comment.", items=_FEED),
    Field("feedback_source", _T, "Who gave it: api, app, model or auto_eval.", items=_FEED),
    Field("feedback_error", FieldType.BOOLEAN, "Whether giving it failed.", items=_FEED),
    Field("feedback_modified_at", FieldType.TIME, "When it was last changed.", items=_FEED),
)

BY_NAME: dict[str, Field] = {
    name: field for field in FIELDS for name in (field.name, *field.aliases)
}


_S = FieldType.SECONDS

THREAD_FIELDS: tuple[Field, ...] = (
    Field("thread_id", _T, "The thread."),
    Field("count", _N, "How many turns it has.", aliases=("turns", "trace_count")),
    Field("num_errored_turns", _N, "How many of them failed.", aliases=("error_count",)),
    Field(
        "min_start_time",
        FieldType.TIME,
        "When its first turn began.",
        aliases=("first_start_time",),
    ),
    Field(
        "max_start_time",
        FieldType.TIME,
        "When its last turn began.",
        aliases=("last_start_time", "start_time"),
    ),
    Field("last_end_time", FieldType.TIME, "When its last turn ended.", aliases=("end_time",)),
    Field("latency_p50", _S, "Half of its turns took as long, or less.", aliases=("latency",)),
    Field("latency_p99", _S, "As latency_p50, of 99 in a hundred."),
    Field("total_tokens", _N, "Of all turns together."),
    Field("prompt_tokens", _N, "As total_tokens."),
    Field("completion_tokens", _N, "As total_tokens."),
    Field("total_cost", _N, "As total_tokens, in US dollars."),
    Field("prompt_cost", _N, "As total_cost."),
    Field("completion_cost", _N, "As total_cost."),
    Field("first_trace_id", FieldType.UUID, "Its first turn."),
    Field("last_trace_id", FieldType.UUID, "Its last turn.", aliases=("trace_id",)),
    Field("first_inputs", _T, "How the first turn's inputs begin."),
    Field("last_outputs", _T, "How the last turn's outputs begin."),
    Field("last_error", _T, "What went wrong in the last turn; null when nothing did."),
    # Given on the thread, or on any run of it.
    *(one for one in FIELDS if one.items is ItemKind.FEEDBACK),
)
THREAD_FIELDS_BY_NAME = {
    name: field for field in THREAD_FIELDS for name in (field.name, *field.aliases)
}
