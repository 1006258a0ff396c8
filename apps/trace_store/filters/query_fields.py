"""The fields of the query bar's language: their names, values and examples."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from apps.trace_store.filters.fields import BY_NAME, FIELDS, Field, FieldType, ItemKind
from apps.trace_store.types import RunType


class QueryKind(StrEnum):
    """What a query field takes, which decides its operators and its error text."""

    TEXT = "text"
    CONTENT = "content"
    """A text that is searched by words."""
    DURATION = "duration"
    NUMBER = "number"
    MONEY = "money"
    TIME = "time"
    ID = "id"
    BOOLEAN = "boolean"
    MIXED = "mixed"
    """A JSON value of a pair: text, or a number where the comparison has an order."""


@dataclass(frozen=True, slots=True)
class QueryField:
    """A field of the language and the field of the run, or of an item of the run, behind it."""

    name: str
    kind: QueryKind
    field: Field
    example: str = ""
    about: str = ""
    values: tuple[str, ...] = ()
    """The only values, in lower case; empty for any."""
    keys: tuple[str, ...] = ()
    """The keys of the items that the field reads; empty for a field of the run."""
    key_field: Field | None = None

    @property
    def items(self) -> ItemKind | None:
        return self.field.items

    @property
    def is_ordered(self) -> bool:
        return self.kind in _ORDERED


_ORDERED = {
    QueryKind.DURATION,
    QueryKind.NUMBER,
    QueryKind.MONEY,
    QueryKind.TIME,
    QueryKind.MIXED,
}
STATUS_WORDS = {"running": "pending"}
"""Words of the language for stored statuses."""
STATUSES = ("success", "error", "running", "interrupted", "cancelled")


def _field(name: str, kind: QueryKind, run_field: str, example: str, about: str) -> QueryField:
    return QueryField(name, kind, BY_NAME[run_field], example, about)


_COMMON = (
    QueryField("status", QueryKind.TEXT, BY_NAME["status"], "error", "How the run ended", STATUSES),
    _field("latency", QueryKind.DURATION, "latency", ">2s", "From start to end"),
    _field("name", QueryKind.TEXT, "name", "support_agent", "Name of the run"),
    _field("model", QueryKind.TEXT, "model", "gpt-4.1*", "Model that was called"),
    _field("tag", QueryKind.TEXT, "tags", "production", "Tag of the run"),
    _field("cost", QueryKind.MONEY, "total_cost", ">$0.01", "Cost in US dollars"),
    QueryField(
        "type", QueryKind.TEXT, BY_NAME["run_type"], "tool", "Type of the run", tuple(RunType)
    ),
    _field("error", QueryKind.CONTENT, "error", "timeout", "Words of the error"),
    _field("input", QueryKind.CONTENT, "inputs", "refund", "Words of the inputs"),
    _field("output", QueryKind.CONTENT, "outputs", "refund", "Words of the outputs"),
    _field("tokens", QueryKind.NUMBER, "total_tokens", ">4k", "Input and output tokens"),
    _field("tokens.in", QueryKind.NUMBER, "prompt_tokens", ">2k", "Input tokens"),
    _field("tokens.out", QueryKind.NUMBER, "completion_tokens", ">500", "Output tokens"),
    _field(
        "first_token", QueryKind.DURATION, "first_token_latency", ">500ms", "Until the first token"
    ),
    _field("start", QueryKind.TIME, "start_time", ">2h", "Start time, or how long ago"),
    _field("end", QueryKind.TIME, "end_time", "<2026-01-31", "End time"),
    _field("thread", QueryKind.TEXT, "thread_id", "thread-1", "Conversation of the run"),
    _field("id", QueryKind.ID, "id", "", "Id of the run"),
    _field("trace", QueryKind.ID, "trace_id", "", "Id of the trace"),
    _field("parent", QueryKind.ID, "parent_run_id", "", "Id of the parent run"),
    _field("project", QueryKind.ID, "session_id", "", "Id of the project"),
    _field("example", QueryKind.ID, "reference_example_id", "", "Id of the example"),
    _field("dataset", QueryKind.ID, "reference_dataset_id", "", "Id of the dataset"),
    _field("root", QueryKind.BOOLEAN, "is_root", "true", "Whether the run has no parent"),
    _field("depth", QueryKind.NUMBER, "execution_order", "1", "1 for a root, 2 below it"),
    _field("metadata", QueryKind.CONTENT, "metadata", "gold", "Words of the metadata"),
    _field("feedback", QueryKind.TEXT, "feedback_key", "helpful", "Key of a feedback"),
)


def _pair(name: str, keys: tuple[str, ...], example: str, about: str) -> QueryField:
    return QueryField(
        name,
        QueryKind.MIXED,
        BY_NAME["metadata_value"],
        example,
        about,
        keys=keys,
        key_field=BY_NAME["metadata_key"],
    )


DEPLOYMENT_KEY = "LANGSMITH_HOST_PROJECT_NAME"
"""The metadata key of the deployment's name: the SDK adds this variable of a graph host to runs."""

_PAIRS = (
    _pair("user", ("user_id", "user"), "u-17", "User, from the metadata"),
    _pair("env", ("env", "environment"), "production", "Environment, from the metadata"),
    _pair("deployment", (DEPLOYMENT_KEY,), "support-agent", "Deployment that ran it"),
    _pair("revision", ("revision_id",), "7", "Revision of the deployment or of the code"),
)
_KINDS = {
    FieldType.UUID: QueryKind.ID,
    FieldType.TEXT: QueryKind.TEXT,
    FieldType.TEXTS: QueryKind.TEXT,
    FieldType.NUMBER: QueryKind.NUMBER,
    FieldType.SECONDS: QueryKind.DURATION,
    FieldType.TIME: QueryKind.TIME,
    FieldType.BOOLEAN: QueryKind.BOOLEAN,
    FieldType.OBJECT: QueryKind.CONTENT,
    FieldType.CONTENT: QueryKind.CONTENT,
}

QUERY_FIELDS: tuple[QueryField, ...] = _COMMON[:6] + _PAIRS + _COMMON[6:]
"""The most used fields first."""
QUERY_FIELDS_BY_NAME: dict[str, QueryField] = {item.name: item for item in QUERY_FIELDS}
_BY_RUN_FIELD = {item.field.name: item for item in _COMMON}
# A field keeps the name that it has in the API's language, so that both can be typed.
for run_field in FIELDS:
    for alias in (run_field.name, *run_field.aliases):
        known = _BY_RUN_FIELD.get(run_field.name)
        if known is None and run_field.items in (None, ItemKind.FEEDBACK):
            known = QueryField(run_field.name, _KINDS[run_field.kind], run_field)
        if known is not None:
            QUERY_FIELDS_BY_NAME.setdefault(alias, known)

KEYED_FIELDS = ("metadata", "input", "output", "feedback")
"""Fields that are followed by a dot and a key."""
_KEYED: dict[str, tuple[Field, Field, QueryKind]] = {
    "metadata": (BY_NAME["metadata_key"], BY_NAME["metadata_value"], QueryKind.MIXED),
    "input": (BY_NAME["input_key"], BY_NAME["input_value"], QueryKind.MIXED),
    "output": (BY_NAME["output_key"], BY_NAME["output_value"], QueryKind.MIXED),
    "feedback": (BY_NAME["feedback_key"], BY_NAME["feedback_score"], QueryKind.NUMBER),
}
COMMENT_SUFFIX = ".comment"


def keyed_field(group: str, key: str) -> QueryField:
    """Return the field of a key such as `metadata.plan` or `feedback.helpful.comment`."""
    key_field, value_field, kind = _KEYED[group]
    name = f"{group}.{key}"
    if group == "feedback" and key.endswith(COMMENT_SUFFIX):
        key = key.removesuffix(COMMENT_SUFFIX)
        value_field, kind = BY_NAME["feedback_comment"], QueryKind.TEXT
    return QueryField(name, kind, value_field, keys=(key,), key_field=key_field)
