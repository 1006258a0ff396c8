"""Validation of namespaces, and SQL that lists them by skipping through the index."""
# ruff: noqa: S608  (the pieces are constants; all values are parameters)

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import Any, NamedTuple

from apps.agent_server.store.filters import FilterClause
from apps.agent_server.store.statements import (
    AGENT,
    NOT_EXPIRED,
    Statement,
    StoreOwner,
    prefix_condition,
)
from apps.core import errors

ANY = "*"
RESERVED_ROOT = "langgraph"
MAX_LABELS = 64
MAX_KEY_BYTES = 2000
"""Limit for namespace and key together, which form one index entry."""


class BadNamespace(errors.Invalid):
    code = "bad_namespace"


class NamespaceRejected(errors.BadRequest):
    code = "bad_namespace"


class NamespaceMatch(NamedTuple):
    """A prefix or suffix of namespaces; `*` matches any one label."""

    is_prefix: bool
    path: Sequence[str]


def validate_item_key(namespace: Sequence[Any], key: str) -> None:
    """Validate namespace and key of an item."""
    if not namespace:
        raise NamespaceRejected("Namespace cannot be empty.")
    validate_labels(namespace)
    if namespace[0] == RESERVED_ROOT:
        raise NamespaceRejected(
            f'Root label for namespace cannot be "{RESERVED_ROOT}". Got: {list(namespace)}'
        )
    if not key or "\0" in key:
        raise BadNamespace("key: must be a non-empty string without NUL")
    if sum(len(text.encode()) for text in (*namespace, key)) > MAX_KEY_BYTES:
        raise BadNamespace(f"namespace and key: together longer than {MAX_KEY_BYTES} bytes")


def validate_labels(namespace: Sequence[Any]) -> None:
    """Validate a namespace or a prefix of one."""
    if not isinstance(namespace, list | tuple):
        raise BadNamespace("namespace: must be a list of labels")
    if len(namespace) > MAX_LABELS:
        raise BadNamespace(f"namespace: more than {MAX_LABELS} labels")
    for label in namespace:
        if not isinstance(label, str):
            raise BadNamespace(f"Invalid namespace label '{label}': labels must be strings.")
        if not label or "\0" in label:
            raise BadNamespace("Namespace labels cannot be empty.")
        if "." in label:
            raise BadNamespace(
                f"Invalid namespace label '{label}'. Namespace labels cannot contain periods ('.')."
            )


def list_namespaces(
    owner: StoreOwner,
    matches: Sequence[NamespaceMatch],
    *,
    max_depth: int | None,
    limit: int,
    offset: int,
) -> Statement:
    """The distinct namespaces of items, in order, truncated to `max_depth` labels."""
    prefix: list[str] = []
    unindexed_matches: list[NamespaceMatch] = []
    for match in matches:
        start = list(takewhile(lambda label: label != ANY, match.path)) if match.is_prefix else []
        if len(start) > len(prefix) and start[: len(prefix)] == prefix:
            prefix = start
        if len(start) < len(match.path) or prefix[: len(start)] != start:
            unindexed_matches.append(match)
    conditions = [_condition(match) for match in unindexed_matches]
    condition = FilterClause(
        "".join(f" AND {c.text}" for c in conditions),
        [value for c in conditions for value in c.parameters],
    )
    prefix_range = prefix_condition(prefix)
    if unindexed_matches:
        return _list_by_scan(owner, prefix_range, condition, max_depth, limit, offset)
    return _list_by_skip_scan(owner, prefix_range, max_depth, limit, offset)


def _list_by_skip_scan(
    owner: StoreOwner, prefix_range: FilterClause, max_depth: int | None, limit: int, offset: int
) -> Statement:
    selected = "namespace" if max_depth is None else f"namespace[1:{int(max_depth)}]"
    # The lower bound of the next namespace: past everything below a truncated namespace,
    # otherwise directly after the last one.
    after = "ns || ''::text"
    if max_depth is not None:
        depth = int(max_depth)
        after = (
            f"CASE WHEN cardinality(ns) < {depth} THEN {after}"
            f" ELSE ns[1:{depth - 1}] || (ns[{depth}] || E'\\x01') END"
        )
    first = f"""
        SELECT {selected} AS ns FROM agent_server_storeitem
        WHERE {AGENT}{prefix_range.text} AND {NOT_EXPIRED}{{more}} ORDER BY namespace LIMIT 1
    """
    parameters = [*owner, *prefix_range.parameters]
    return Statement(
        f"""
        WITH RECURSIVE listed AS (
            ({first.format(more="")})
            UNION ALL
            SELECT next.ns FROM listed CROSS JOIN LATERAL (
                {first.format(more=f" AND namespace >= ({after})")}
            ) next
        )
        SELECT ns FROM listed LIMIT %s OFFSET %s
        """,
        [*parameters, *parameters, limit, offset],
    )


def _list_by_scan(  # noqa: PLR0917
    owner: StoreOwner,
    prefix_range: FilterClause,
    condition: FilterClause,
    max_depth: int | None,
    limit: int,
    offset: int,
) -> Statement:
    selected = "namespace" if max_depth is None else f"namespace[1:{int(max_depth)}]"
    return Statement(
        f"""
        SELECT DISTINCT {selected} AS ns FROM agent_server_storeitem
        WHERE {AGENT}{prefix_range.text} AND {NOT_EXPIRED}{condition.text}
        ORDER BY ns LIMIT %s OFFSET %s
        """,
        [*owner, *prefix_range.parameters, *condition.parameters, limit, offset],
    )


def _condition(match: NamespaceMatch) -> FilterClause:
    """The condition for a match that is not a range of the index."""
    texts, parameters = ["cardinality(namespace) >= %s::int"], [len(match.path)]
    for index, label in enumerate(match.path):
        if label == ANY:
            continue
        if match.is_prefix:
            texts.append(f"namespace[{index + 1}] = %s")
        else:
            texts.append(f"namespace[cardinality(namespace) - {len(match.path) - index - 1}] = %s")
        parameters.append(label)  # type: ignore[arg-type]
    return FilterClause(" AND ".join(texts), list(parameters))
