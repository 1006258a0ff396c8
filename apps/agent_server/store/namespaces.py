"""Validation of namespaces, and SQL that lists them by skipping through the index."""
# ruff: noqa: S608  (the pieces are constants; all values are parameters)

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import Any, NamedTuple

from apps.agent_server.store.filters import Condition
from apps.agent_server.store.statements import Owner, Query, prefix_upper_bound
from apps.core import errors

ANY = "*"
RESERVED_ROOT = "langgraph"
MAX_LABELS = 64
MAX_KEY_BYTES = 2000
"""Limit for namespace and key together, which form one index entry."""
_ALIVE = "(expires_at IS NULL OR expires_at > statement_timestamp())"
_AGENT = "workspace_id = %s AND deployment_id = %s"


class BadNamespace(errors.Invalid):
    code = "bad_namespace"


class NamespaceRejected(errors.BadRequest):
    code = "bad_namespace"


class Match(NamedTuple):
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
        raise BadNamespace("key: must be a text of at least one character, without NUL")
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
            raise BadNamespace(f"Invalid namespace label '{label}': labels must be texts.")
        if not label or "\0" in label:
            raise BadNamespace("Namespace labels cannot be empty.")
        if "." in label:
            raise BadNamespace(
                f"Invalid namespace label '{label}'. Namespace labels cannot contain periods ('.')."
            )


def list_namespaces(
    owner: Owner, matches: Sequence[Match], *, max_depth: int | None, limit: int, offset: int
) -> Query:
    """The distinct namespaces of items, in order, truncated to `max_depth` labels."""
    prefix: list[str] = []
    rest: list[Match] = []
    for match in matches:
        start = list(takewhile(lambda label: label != ANY, match.path)) if match.is_prefix else []
        if len(start) > len(prefix) and start[: len(prefix)] == prefix:
            prefix = start
        if len(start) < len(match.path) or prefix[: len(start)] != start:
            rest.append(match)
    conditions = [_condition(match) for match in rest]
    condition = Condition(
        "".join(f" AND {c.text}" for c in conditions),
        [value for c in conditions for value in c.parameters],
    )
    below = Condition("", [])
    if prefix:
        text = " AND namespace >= %s::text[] AND namespace < %s::text[]"
        below = Condition(text, [prefix, prefix_upper_bound(prefix)])
    if rest:
        return _list_by_scan(owner, below, condition, max_depth, limit, offset)
    return _list_by_skip_scan(owner, below, max_depth, limit, offset)


def _list_by_skip_scan(
    owner: Owner, below: Condition, max_depth: int | None, limit: int, offset: int
) -> Query:
    cut = "namespace" if max_depth is None else f"namespace[1:{int(max_depth)}]"
    # The next namespace outside of the last one or, if that was not truncated, after it.
    after = "ns || ''::text"
    if max_depth is not None:
        depth = int(max_depth)
        after = (
            f"CASE WHEN cardinality(ns) < {depth} THEN {after}"
            f" ELSE ns[1:{depth - 1}] || (ns[{depth}] || E'\\x01') END"
        )
    first = f"""
        SELECT {cut} AS ns FROM agent_server_storeitem
        WHERE {_AGENT}{below.text} AND {_ALIVE}{{more}} ORDER BY namespace LIMIT 1
    """
    parameters = [*owner, *below.parameters]
    return Query(
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
    owner: Owner,
    below: Condition,
    condition: Condition,
    max_depth: int | None,
    limit: int,
    offset: int,
) -> Query:
    cut = "namespace" if max_depth is None else f"namespace[1:{int(max_depth)}]"
    return Query(
        f"""
        SELECT DISTINCT {cut} AS ns FROM agent_server_storeitem
        WHERE {_AGENT}{below.text} AND {_ALIVE}{condition.text}
        ORDER BY ns LIMIT %s OFFSET %s
        """,
        [*owner, *below.parameters, *condition.parameters, limit, offset],
    )


def _condition(match: Match) -> Condition:
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
    return Condition(" AND ".join(texts), list(parameters))
