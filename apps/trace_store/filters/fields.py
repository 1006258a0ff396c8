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

ALL_CONTENT = Field("", FieldType.CONTENT, "All searched content of the run, for `search(text)`.")

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
    Field("status", _T, "success, error, interrupted, cancelled or pending.", is_word=True),
    Field("error", _T, "The error; null unless the status is `error`.", is_searched=True),
    Field("thread_id", _T, "The thread key from the metadata."),
    Field("dotted_order", _T, "The position in the trace, as sent."),
    Field("model", _T, "The model that was called.", aliases=("model_name",)),
    Field("is_root", FieldType.BOOLEAN, "Whether the run has no parent."),
    Field("execution_order", _N, "1 for a root, 2 for the runs below it, and so on."),
    Field("start_time", FieldType.TIME, "The start time."),
    Field("end_time", FieldType.TIME, "The end time; null until then."),
    Field("first_token_time", FieldType.TIME, "The time of a model's first token."),
    Field("latency", FieldType.SECONDS, "The time from start to end; null until the end."),
    Field(
        "first_token_latency",
        FieldType.SECONDS,
        "The time from start to first token.",
        aliases=("time_to_first_token", "first_token"),
    ),
    Field(
        "total_tokens",
        _N,
        "The tokens of a model call; for other runs, the sum of their descendants.",
    ),
    Field("prompt_tokens", _N, "As total_tokens."),
    Field("completion_tokens", _N, "As total_tokens."),
    Field("total_cost", _N, "As total_tokens, in US dollars."),
    Field("prompt_cost", _N, "As total_cost."),
    Field("completion_cost", _N, "As total_cost."),
    Field("tags", FieldType.TEXTS, "The run's tags.", aliases=("tag",)),
    Field("metadata", FieldType.OBJECT, "The run's metadata object."),
    Field("inputs", FieldType.CONTENT, "The inputs; null when missing or an empty object."),
    Field("outputs", FieldType.CONTENT, "The outputs; null when missing or an empty object."),
    Field("metadata_key", _T, "A key of the metadata.", items=_META),
    Field("metadata_value", _T, "The value of that key.", items=_META, is_json=True),
    Field("input_key", _T, "A path in the inputs: keys with dots, no list indexes.", items=_IN),
    Field("input_value", _T, "The text, number or boolean of the path.", items=_IN, is_json=True),
    Field("output_key", _T, "As input_key, of the outputs.", items=_OUT),
    Field("output_value", _T, "As input_value, of the outputs.", items=_OUT, is_json=True),
    Field("feedback_key", _T, "The feedback key.", items=_FEED),
    Field("feedback_score", _N, "The score.", items=_FEED),
    Field("feedback_value", _T, "The value.", items=_FEED, is_json=True),
    Field("feedback_comment", _T, "The comment.", items=_FEED),
    Field("feedback_source", _T, "The source type: api, app, model or auto_eval.", items=_FEED),
    Field("feedback_error", FieldType.BOOLEAN, "Whether the evaluator failed.", items=_FEED),
    Field("feedback_modified_at", FieldType.TIME, "The time of the last change.", items=_FEED),
)

BY_NAME: dict[str, Field] = {
    name: field for field in FIELDS for name in (field.name, *field.aliases)
}


_S = FieldType.SECONDS

THREAD_FIELDS: tuple[Field, ...] = (
    Field("thread_id", _T, "The thread."),
    Field("count", _N, "The number of turns.", aliases=("turns", "trace_count")),
    Field("num_errored_turns", _N, "The number of turns with an error.", aliases=("error_count",)),
    Field(
        "min_start_time",
        FieldType.TIME,
        "The start time of the first turn.",
        aliases=("first_start_time",),
    ),
    Field(
        "max_start_time",
        FieldType.TIME,
        "The start time of the last turn.",
        aliases=("last_start_time", "start_time"),
    ),
    Field("last_end_time", FieldType.TIME, "The end time of the last turn.", aliases=("end_time",)),
    Field("latency_p50", _S, "The median latency of the turns.", aliases=("latency",)),
    Field("latency_p99", _S, "The 99th percentile of the latency."),
    Field("total_tokens", _N, "The sum over all turns."),
    Field("prompt_tokens", _N, "As total_tokens."),
    Field("completion_tokens", _N, "As total_tokens."),
    Field("total_cost", _N, "As total_tokens, in US dollars."),
    Field("prompt_cost", _N, "As total_cost."),
    Field("completion_cost", _N, "As total_cost."),
    Field("first_trace_id", FieldType.UUID, "The first turn."),
    Field("last_trace_id", FieldType.UUID, "The last turn.", aliases=("trace_id",)),
    Field("first_inputs", _T, "A preview of the first turn's inputs."),
    Field("last_outputs", _T, "A preview of the last turn's outputs."),
    Field("last_error", _T, "The error of the last turn; null without an error."),
    # Feedback on the thread or on any of its runs.
    *(run_field for run_field in FIELDS if run_field.items is ItemKind.FEEDBACK),
)
THREAD_FIELDS_BY_NAME = {
    name: field for field in THREAD_FIELDS for name in (field.name, *field.aliases)
}
