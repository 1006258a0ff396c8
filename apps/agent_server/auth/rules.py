"""What an agent's own rules (`@auth.on`) mean for rows: filters, and rewritten requests."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, TypeVar

from apps.agent_server.schemas.base import Body
from apps.core import errors
from apps.core.json import dumps, dumps_text

B = TypeVar("B")
# What the SDK calls `namespace` in every request to the store, and the bodies do not.
_STORE_NAMES = {"search": "namespace_prefix", "list_namespaces": "prefix"}


class UnsupportedFilter(errors.Forbidden):
    """A handler's filter cannot be applied exactly, so nothing is shown at all."""

    code = "auth_filter_refused"

    def __init__(self, why: str) -> None:
        super().__init__(f"The agent's authorization returned a filter that cannot be used: {why}.")


class DeniedByAgent(errors.AppError):
    """The agent's own code said no, in its own words."""

    code = "refused_by_agent"


def refusal_error(told: Mapping[str, Any]) -> errors.AppError:
    """What the agent's code wants the caller to be answered."""
    status = told.get("status")
    known = isinstance(status, int) and 400 <= status <= 599
    return _of_status(status if known else 403)(str(told.get("detail") or "Forbidden"))


@cache
def _of_status(status: Any) -> type[DeniedByAgent]:
    return type("DeniedByAgent", (DeniedByAgent,), {"status": status})


def metadata_filter(resource: str, filters: Any) -> str:
    """The JSON that a row's metadata must contain; `FilterRefused` where that is not exact."""
    if not filters:
        return "{}"
    if not isinstance(filters, dict):
        raise UnsupportedFilter("it is not an object")
    if resource == "store":
        raise UnsupportedFilter("items of the store have no metadata; rewrite value['namespace']")
    return dumps_text({key: _contained(key, rule) for key, rule in filters.items()})


def _contained(key: str, rule: Any) -> Any:
    """What a value contains, by PostgreSQL's `@>`, exactly when the rule holds for it."""
    if not isinstance(rule, dict):
        return _scalar(key, rule)
    if len(rule) != 1:
        raise UnsupportedFilter(f"`{key}` must have one operator")
    [(operator, wanted)] = rule.items()
    if operator == "$eq":
        return _scalar(key, wanted)
    if operator == "$contains":
        values = wanted if isinstance(wanted, list) else [wanted]
        return [_scalar(key, value) for value in values]
    raise UnsupportedFilter(
        f"`{key}` has the operator `{operator}`; `$eq` and `$contains` are known"
    )


def _scalar(key: str, value: Any) -> Any:
    if isinstance(value, dict | list):
        raise UnsupportedFilter(
            f"`{key}` must be compared with a text, a number, a boolean or null"
        )
    return value


def describe_value(
    resource: str, action: str, body: Any, asked: Mapping[str, Any]
) -> dict[str, Any]:
    """What is asked for, as handlers are told of it."""
    value: dict[str, Any] = {}
    if isinstance(body, Body):
        value = body.model_dump(mode="json", exclude_unset=True)
        if "metadata" in type(body).model_fields:
            value.setdefault("metadata", {})
    if resource == "store" and action in _STORE_NAMES:
        value["namespace"] = value.pop(_STORE_NAMES[action], None)
    value |= {name: given for name, given in asked.items() if name != "slug"}
    if action == "create_run":
        value = _run_value(value)
    return value


_OF_RUN = ("assistant_id", "thread_id", "metadata", "multitask_strategy", "if_not_exists")


def _run_value(value: dict[str, Any]) -> dict[str, Any]:
    """A run as the SDK's `RunsCreate` has it: what it is told is in `kwargs`."""
    outside = {name: value.get(name) for name in _OF_RUN}
    outside["metadata"] = outside["metadata"] or {}
    return {
        **outside,
        "run_id": None,
        "status": "pending",
        "prevent_insert_if_inflight": value.get("multitask_strategy") == "reject",
        "after_seconds": value.get("after_seconds") or 0,
        "kwargs": {name: given for name, given in value.items() if name not in outside},
    }


def apply_changes(resource: str, action: str, body: B, before: Any, after: dict[str, Any]) -> B:
    """The body with what a handler changed in it, checked like any."""
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
    mended: B = type(body).check({**body.model_dump(mode="json", exclude_unset=True), **changed})
    return mended
