"""Small random populations of runs, and random filters that have a chance to match some of them."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from hypothesis import strategies as st

from apps.feedback.models import Feedback
from apps.organizations.models import Workspace
from apps.trace_store.filters import fields
from apps.trace_store.filters.builders import quote
from apps.trace_store.filters.fields import FIELDS, OPERATORS, FieldType
from apps.tracing.models import Project
from tests.factories.tracing import ingest, wire_run

BEGIN = datetime(2026, 3, 1, 12, tzinfo=UTC)
NAMES = ["agent", "Agent", "retrieve docs", "100%", "a_b", "ÜBER-\u03a3", "退款 agent", ""]
TEXTS = [
    "paris",
    "Hamburg",
    "refund policy",
    "true",
    "5",
    "x\"y'z",
    "straße",
    "50% off",
    "退款",
    "",
]
KEYS = ["tier", "city", "user.name", "session_id", "n"]
VALUES: list[Any] = ["gold", "5", 5, 5.0, 1.5, True, None, {"a": 1}, [1, "b"], "true", "t-1", 12]
TAGS = ["prod", "Prod", "beta", "a b"]
ERRORS = [None, None, None, "Timeout after 5 s", "refund refused\nat line 2", "Timeout", "x" * 400]
TYPES = ["chain", "llm", "tool", "retriever"]
SCORES = [None, 0.0, 0.2, 0.5, 1.0, 5.0]
FEEDBACK_KEYS = ["helpful", "correct"]
FEEDBACK_VALUES: list[Any] = [None, "good", 5, True, {"a": "good"}, "5"]
SOURCES = ["api", "app", "model"]
MODELS = ["gpt-4o", "claude", None]


def populate(workspace: Workspace, seed: int, *, runs: int = 24) -> list[UUID]:
    """Store traces over a few days, with feedback, and return the ids of their runs."""
    chance = random.Random(seed)
    runs_created: list[dict[str, Any]] = []
    for _ in range(runs):
        parent = chance.choice(runs_created) if runs_created and chance.random() < 0.6 else None
        runs_created.append(_run(chance, parent))
    ingest(workspace, *runs_created)
    for run in runs_created:
        for _ in range(chance.choice([0, 0, 1, 2])):
            _feedback(chance, workspace, run)
    project = Project.objects.for_workspace(workspace).get(name="default")
    project.reference_dataset_id = UUID(int=7)
    project.save()
    return [UUID(run["id"]) for run in runs_created]


def _run(chance: random.Random, parent: dict[str, Any] | None) -> dict[str, Any]:
    # A child may be a little before its parent, by another machine's clock, or some days after.
    begin = datetime.fromisoformat(parent["start_time"]) if parent else BEGIN
    start = begin + timedelta(seconds=chance.randint(-5, 20), days=chance.randint(0, 1))
    run_type = chance.choice(TYPES)
    metadata = {key: chance.choice(VALUES) for key in chance.sample(KEYS, chance.randint(0, 3))}
    if model := chance.choice(MODELS):
        metadata["ls_model_name"] = model
    outputs = chance.choice([None, {}, _payload(chance)])
    if run_type == "llm" or chance.random() < 0.2:
        tokens = {"input_tokens": chance.randint(0, 9), "output_tokens": chance.randint(0, 9)}
        cost = {} if chance.random() < 0.5 else {"total_cost": chance.choice([0, 0.001, 1.5])}
        outputs = (outputs or {}) | {"usage_metadata": tokens | cost}
    name = chance.choice(NAMES) or "nameless"
    return wire_run(
        parent,
        start=start,
        name=name,
        run_type=run_type,
        start_time=(start + timedelta(milliseconds=chance.choice([0, 0, 1500]))).isoformat(),
        end_time=chance.choice(
            [None, *((start + timedelta(seconds=s)).isoformat() for s in (0, 0.75, 2.5, 5, 90))]
        ),
        tags=chance.choice([None, [], chance.sample(TAGS, 2), [chance.choice(TAGS)]]),
        inputs=chance.choice([{}, _payload(chance)]),
        outputs=outputs,
        error=chance.choice(ERRORS),
        events=[{"name": "new_token", "time": (start + timedelta(seconds=1)).isoformat()}]
        if chance.random() < 0.3
        else None,
        extra={"metadata": metadata},
        reference_example_id=chance.choice([None, None, str(UUID(int=3))]),
    ) | ({} if parent else {"session_name": chance.choice(["default", "default", "other"])})


def _payload(chance: random.Random) -> dict[str, Any]:
    return {
        chance.choice(["city", "n"]): chance.choice([*TEXTS, *VALUES]),
        "messages": [
            {"role": "user", "content": chance.choice([*TEXTS, 5, None])}
            for _ in range(chance.randint(0, 2))
        ],
        "user": {"city": chance.choice(TEXTS), "name": chance.choice(TEXTS)},
    }


def _feedback(chance: random.Random, workspace: Workspace, run: dict[str, Any]) -> None:
    Feedback(
        workspace=workspace,
        run_id=UUID(run["id"]),
        key=chance.choice(FEEDBACK_KEYS),
        score=chance.choice(SCORES),
        value=chance.choice(FEEDBACK_VALUES),
        comment=chance.choice([None, "", "well done", "Bad"]),
        source={"type": chance.choice(SOURCES)},
        is_error=chance.random() < 0.2,
    ).save()


def filters(run_ids: list[UUID]) -> st.SearchStrategy[str]:
    """Return a strategy for filter texts over such a population."""
    leaves = st.sampled_from(FIELDS).flatmap(lambda field: _leaf(field, run_ids))
    searches = st.sampled_from(
        [*TEXTS[:5], "退款", "TIMEOUT", "gold", "prod", "5", "1.5", "timeo*", "Ag*", "time* go*"]
    )
    leaves |= searches.map(lambda text: f"search({quote(text)})")
    # Conditions on the fields of one pair are more likely to match next to each other.
    for items in fields.ItemKind:
        of_items = [field for field in FIELDS if field.items is items]
        pair = st.sampled_from(of_items).flatmap(lambda field: _leaf(field, run_ids))
        leaves |= st.lists(pair, min_size=1, max_size=3).map(lambda all_: f"and({','.join(all_)})")
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.lists(inner, min_size=1, max_size=3).map(lambda all_: f"and({', '.join(all_)})"),
            st.lists(inner, min_size=1, max_size=3).map(lambda all_: f"or({', '.join(all_)})"),
            inner.map(lambda text: f"not({text})"),
        ),
        max_leaves=6,
    )


def _leaf(field: fields.Field, run_ids: list[UUID]) -> st.SearchStrategy[str]:
    operators = [*OPERATORS[field.kind], *(["search"] if field.is_searched else [])]
    values = _values(field, run_ids)
    patterns = st.sampled_from(
        [
            "%",
            "_gent",
            "%a%",
            "%E%",
            "%burg",
            "100\\\\%",
            "a\\\\_b",
            "%ü%",
            "%\u03c3",
            "退%",
            "_",
            "%5%",
        ]
    ).map(lambda text: f'"{text}"')

    def call(operator: str) -> st.SearchStrategy[str]:
        if operator in {"is_null", "is_not_null"}:
            return st.just(f"{operator}({field.name})")
        if operator == "in":
            lists = st.lists(values, max_size=3)
            return lists.map(lambda all_: f"in({field.name}, [{', '.join(all_)}])")
        if operator == "search":
            return st.sampled_from(TEXTS[:3]).map(lambda t: f"search({field.name}, {quote(t)})")
        if "like" in operator:
            return patterns.map(lambda value: f"{operator}({field.name}, {value})")
        if field.kind is FieldType.OBJECT:
            texts = _KEYS if operator == "exists" else _OBJECTS
            return texts.map(lambda value: f"{operator}({field.name}, {value})")
        if operator in {"eq", "neq"}:
            return (values | st.just("null")).map(
                lambda value: f"{operator}({field.name}, {value})"
            )
        return values.map(lambda value: f"{operator}({field.name}, {value})")

    return st.sampled_from(operators).flatmap(call)


_KEYS = st.sampled_from([*KEYS, "ls_model_name"]).map(quote)
_OBJECTS = st.sampled_from(
    [
        "'{}'",
        '\'{"tier": "gold"}\'',
        "'{\"n\": 5.0}'",
        '\'{"city": {"a": 1}}\'',
        "'{\"city\": {}}'",
        "'{\"tier\": [1]}'",
        "'{\"n\": null}'",
        '\'{"n": true, "tier": 5}\'',
    ]
)


def _values(field: fields.Field, run_ids: list[UUID]) -> st.SearchStrategy[str]:
    match field.kind:
        case FieldType.UUID:
            known = [*run_ids[:6], UUID(int=3), UUID(int=7)]
            return st.sampled_from([f'"{identifier}"' for identifier in known])
        case FieldType.NUMBER:
            return st.sampled_from(["0", "1", "2", "5", "0.2", "0.5", "1.5", "0.001", "9", "-1"])
        case FieldType.SECONDS:
            return st.sampled_from(["0", "1", "2.5", '"750ms"', '"5s"', '"1m"', "0.5", "88.5"])
        case FieldType.BOOLEAN:
            return st.sampled_from(["true", "False", '"true"'])
        case FieldType.TIME:
            times = [BEGIN + timedelta(seconds=s, days=d) for s in (0, 5, 10) for d in (0, 1)]
            return st.sampled_from([f'"{time.isoformat()}"' for time in times])
    texts = {
        "name": NAMES,
        "run_type": TYPES,
        "status": ["error", "pending", "success"],
        "error": [error for error in ERRORS if error],
        "thread_id": ["t-1", "5", "gold"],
        "model": ["gpt-4o", "claude"],
        "tags": TAGS,
        "metadata_key": KEYS,
        "input_key": ["city", "user.city", "messages", "messages.content", "n", "n.a"],
        "output_key": ["city", "user.city", "messages", "messages.content", "usage_metadata"],
        "feedback_key": FEEDBACK_KEYS,
        "feedback_comment": ["", "well done", "Bad"],
        "feedback_source": SOURCES,
    }.get(field.name, [*TEXTS, "gold", "t-1", "1.5", "good", "5.0", '{"a": 1}'])
    strategy = st.sampled_from(texts).map(quote)
    return (
        strategy | st.sampled_from(["5", "true", "1.5", "1", "12"]) if field.is_json else strategy
    )
