"""Results of an agent's `@auth.on` handlers: metadata filters and rewritten requests."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, TypeVar

from apps.agent_server.schemas.base import Body
from apps.core import errors
from apps.core.json import dumps, dumps_text

B = TypeVar("B")
# Body fields that the SDK calls `namespace` in store requests.
_STORE_NAMES = {"search": "namespace_prefix", "list_namespaces": "prefix"}


class UnsupportedFilter(errors.Forbidden):
    """A handler's filter cannot be applied exactly, so the request is rejected."""

    code = "auth_filter_refused"

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"The agent's authorization returned a filter that cannot be used: {reason}."
        )


class DeniedByAgent(errors.AppError):
    """The agent's handler rejected the request; the text is the handler's."""

    code = "refused_by_agent"


def refusal_error(refusal: Mapping[str, Any]) -> errors.AppError:
    """The error for a handler's rejection, which may set status and text."""
    status = refusal.get("status")
    is_error_status = isinstance(status, int) and 400 <= status <= 599
    return _error_class(status if is_error_status else 403)(
        str(refusal.get("detail") or "Forbidden")
    )


@cache
def _error_class(status: Any) -> type[DeniedByAgent]:
    return type("DeniedByAgent", (DeniedByAgent,), {"status": status})


def metadata_filter(resource: str, filters: Any) -> str:
    """The JSON that a row's metadata must contain. Raises `UnsupportedFilter`."""
    if not filters:
        return "{}"
    if not isinstance(filters, dict):
        raise UnsupportedFilter("it is not an object")
    if resource == "store":
        raise UnsupportedFilter("store items have no metadata; change value['namespace'] instead")
    return dumps_text({key: _containment_operand(key, rule) for key, rule in filters.items()})


def _containment_operand(key: str, rule: Any) -> Any:
    """The operand of PostgreSQL's `@>` that is equivalent to the rule."""
    if not isinstance(rule, dict):
        return _require_scalar(key, rule)
    if len(rule) != 1:
        raise UnsupportedFilter(f"`{key}` must have one operator")
    [(operator, operand)] = rule.items()
    if operator == "$eq":
        return _require_scalar(key, operand)
    if operator == "$contains":
        values = operand if isinstance(operand, list) else [operand]
        return [_require_scalar(key, value) for value in values]
    raise UnsupportedFilter(f"`{key}` has the operator `{operator}`; use `$eq` or `$contains`")


def _require_scalar(key: str, value: Any) -> Any:
    if isinstance(value, dict | list):
        raise UnsupportedFilter(
            f"`{key}` must be compared with a string, a number, a boolean or null"
        )
    return value


def describe_value(
    resource: str, action: str, body: Any, requested: Mapping[str, Any]
) -> dict[str, Any]:
    """The `value` that handlers receive: the body's fields and the requested ids."""
    value: dict[str, Any] = {}
    if isinstance(body, Body):
        value = body.model_dump(mode="json", exclude_unset=True)
        if "metadata" in type(body).model_fields:
            value.setdefault("metadata", {})
    if resource == "store" and action in _STORE_NAMES:
        value["namespace"] = value.pop(_STORE_NAMES[action], None)
    value |= {name: id_ for name, id_ in requested.items() if name != "slug"}
    if action == "create_run":
        value = _run_value(value)
    return value


_RUN_FIELDS = ("assistant_id", "thread_id", "metadata", "multitask_strategy", "if_not_exists")


def _run_value(value: dict[str, Any]) -> dict[str, Any]:
    """A run in the form of the SDK's `RunsCreate`, with its arguments in `kwargs`."""
    fields = {name: value.get(name) for name in _RUN_FIELDS}
    fields["metadata"] = fields["metadata"] or {}
    return {
        **fields,
        "run_id": None,
        "status": "pending",
        "prevent_insert_if_inflight": value.get("multitask_strategy") == "reject",
        "after_seconds": value.get("after_seconds") or 0,
        "kwargs": {name: argument for name, argument in value.items() if name not in fields},
    }


def apply_changes(resource: str, action: str, body: B, before: Any, after: dict[str, Any]) -> B:
    """Apply a handler's changes to the body and validate it again."""
    if not isinstance(body, Body):
        return body
    if action == "create_run":
        before, after = ({**v, **(v.get("kwargs") or {})} for v in (before, after))
    if resource == "store" and action in _STORE_NAMES:
        name = _STORE_NAMES[action]
        before, after = ({**v, name: v.get("namespace")} for v in (before, after))
    fields = type(body).model_fields
    changed = {
        name: value
        for name, value in after.items()
        if name in fields and dumps(value) != dumps(before.get(name))
    }
    if not changed:
        return body
    result: B = type(body).check({**body.model_dump(mode="json", exclude_unset=True), **changed})
    return result
