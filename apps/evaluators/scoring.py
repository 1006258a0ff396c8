"""The structured result of a judge: its schema, and the scores that a reply has.

Each property of the schema is a feedback key, but for one with the reasoning, which becomes the
comment: numbers and booleans are scores, texts are categories.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from apps.core.errors import AppError
from apps.core.json import loads
from apps.datasets.services.content import check_schema, find_violations
from apps.evaluators.errors import BadEvaluator, BadJudgement
from apps.feedback.models import KEY_LENGTH

REASONING_NAMES = ("comment", "reasoning", "explanation")
MAX_KEYS = 20
MAX_CATEGORY_LENGTH = 1000
MAX_COMMENT_LENGTH = 50_000
_SCORED_TYPES = ("number", "integer", "boolean", "string")


class Score(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """One feedback of a result: a score or a category."""

    key: str
    score: float | None = None
    value: str | None = None
    comment: str | None = None


def find_keys(schema: dict[str, Any] | None) -> list[str]:
    """Return the feedback keys of a response schema. Raises `BadEvaluator`."""
    if schema is None:
        raise BadEvaluator("The prompt has no response schema, from which the scores are read.")
    try:
        check_schema(schema, "schema")
    except AppError as error:
        raise BadEvaluator(error.detail) from None
    properties = schema.get("properties")
    if schema.get("type", "object") != "object" or not isinstance(properties, dict):
        raise BadEvaluator("`schema` must be that of an object with `properties`.")
    keys = [name for name in properties if name not in REASONING_NAMES]
    if not 1 <= len(keys) <= MAX_KEYS:
        raise BadEvaluator(
            f"`schema` must have 1 to {MAX_KEYS} properties next to"
            f" {', '.join(REASONING_NAMES)}: each is a feedback key."
        )
    for name in keys:
        if not name or len(name) > KEY_LENGTH:
            raise BadEvaluator(f"A property of `schema` has 1 to {KEY_LENGTH} characters.")
        if not set(_types(properties[name])) & set(_SCORED_TYPES):
            raise BadEvaluator(
                f"`schema`: the property `{name:.100}` must be a number, a boolean or a text."
            )
    return keys


def _types(property_schema: Any) -> Iterator[str]:
    """The types that a value may have."""
    if not isinstance(property_schema, dict):
        return
    kind = property_schema.get("type")
    if isinstance(kind, str):
        yield kind
    elif isinstance(kind, list):
        yield from (item for item in kind if isinstance(item, str))
    elif isinstance(property_schema.get("enum"), list):
        yield "string"
    for name in ("anyOf", "oneOf"):
        for alternative in property_schema.get(name) or ():
            yield from _types(alternative)


def read_scores(schema: dict[str, Any], text: str) -> list[Score]:
    """Return the scores of a reply. Raises `BadJudgement`."""
    try:
        reply = loads(text)
    except ValueError:
        raise BadJudgement("The model's reply is not JSON.") from None
    for violation in find_violations(schema, reply):
        raise BadJudgement(f"The model's reply: ${violation.path} {violation.message}")
    if not isinstance(reply, dict):
        raise BadJudgement("The model's reply is not an object.")
    reasons = [reply[name] for name in REASONING_NAMES if isinstance(reply.get(name), str)]
    comment = next((reason[:MAX_COMMENT_LENGTH] for reason in reasons if reason), None)
    scores = [
        _build_score(name, reply[name], comment)
        for name in find_keys(schema)
        if reply.get(name) is not None
    ]
    if not scores:
        raise BadJudgement("The model's reply has no score.")
    return scores


def _build_score(key: str, value: Any, comment: str | None) -> Score:
    if isinstance(value, bool | int | float):
        return Score(key, score=float(value), comment=comment)
    if isinstance(value, str):
        return Score(key, value=value[:MAX_CATEGORY_LENGTH], comment=comment)
    raise BadJudgement(f"The model's reply: `{key:.100}` is neither a number nor a text.")
