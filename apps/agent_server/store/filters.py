"""SQL conditions for filters on the fields of a store item's value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from apps.core import errors
from apps.core.json import dumps, storable


class BadFilter(errors.BadRequest):
    code = "bad_filter"


class FilterClause(NamedTuple):
    text: str
    parameters: list[Any]


_ORDERS = {"$gt": ">", "$gte": ">=", "$lt": "<", "$lte": "<="}


def compile_filter(fields: Mapping[str, Any] | None) -> FilterClause:
    """Compile a filter to a condition on the column `value`.

    An absent field is null. Order comparisons require two numbers or two strings.
    """
    texts: list[str] = []
    parameters: list[Any] = []
    for field, rule in (fields or {}).items():
        if "\0" in field:
            raise BadFilter("filter: a field name must not contain a NUL character")
        for operator, operand in _operators(rule):
            if operator == "$eq" and operand is not None:
                # Uses the index. Sufficient for scalars; objects may contain more fields.
                texts.append("value @> %s::text::jsonb")
                parameters.append(_json({field: operand}))
                if not isinstance(operand, dict | list):
                    continue
            texts.append(_text(operator, operand))
            parameters += _parameters(operator, field, operand)
    return FilterClause("".join(f" AND {text}" for text in texts), parameters)


def _operators(rule: Any) -> list[tuple[str, Any]]:
    if not isinstance(rule, dict) or not any(name.startswith("$") for name in rule):
        return [("$eq", rule)]
    for name in rule:
        if name not in _ORDERS and name not in {"$eq", "$ne"}:
            raise BadFilter(f"Unsupported operator: {name}")
    return list(rule.items())


def _text(operator: str, operand: Any) -> str:
    if operator in _ORDERS:
        if isinstance(operand, bool) or not isinstance(operand, int | float | str):
            raise BadFilter(f"{operator}: must be compared with a number or a string")
        return (
            "jsonb_typeof(value -> %s::text) = jsonb_typeof(%s::text::jsonb)"
            f" AND value -> %s::text {_ORDERS[operator]} %s::text::jsonb"
        )
    sign = "=" if operator == "$eq" else "<>"
    return f"COALESCE(value -> %s::text, 'null') {sign} %s::text::jsonb"


def _parameters(operator: str, field: str, operand: Any) -> list[Any]:
    pair = [field, _json(operand)]
    return pair * 2 if operator in _ORDERS else pair


def _json(value: Any) -> str:
    return storable(dumps(value)).decode()
