"""What the runs of a rollup's row have in common, and which questions that is enough to answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import NamedTuple

from apps.trace_store.filters.fields import BY_NAME
from apps.trace_store.filters.nodes import And, Comparison, Condition, Expression, Not, Or
from apps.trace_store.filters.reference import meets
from apps.trace_store.store.types import RunQuery

TRACES = -1
"""The scope of roots with the tokens of their traces."""
DEPTHS = (0, 1, 2)
"""The scopes of roots, of runs below a root, and of deeper ones, each with its own tokens."""
WHOLE, KINDS, NAMES = 0, 1, 2
"""The cuts: all in one row, by type and status, by name and model too."""
_TICK = timedelta(microseconds=1)


class Kind(NamedTuple):
    cut: int
    scope: int
    run_type: str = ""
    status: str = ""
    name: str = ""
    model: str = ""


_VALUES: dict[str, Callable[[Kind], str | bool | Decimal | None]] = {
    "name": lambda kind: kind.name,
    "run_type": lambda kind: kind.run_type,
    "status": lambda kind: kind.status,
    "model": lambda kind: kind.model or None,
    "is_root": lambda kind: kind.scope <= 0,
    "execution_order": lambda kind: Decimal(max(kind.scope, 0) + 1),
    # Only whether there is one is known.
    "error": lambda kind: "error" if kind.status == "error" else None,
}
_NEEDS = {"name": NAMES, "model": NAMES, "run_type": KINDS, "status": KINDS, "error": KINDS}


@dataclass(frozen=True, slots=True)
class Rolled:
    """A question that rows of rollups answer: which of them."""

    cut: int
    scopes: tuple[int, ...]
    where: tuple[Expression, ...] = ()

    def keeps(self, kind: Kind) -> bool:
        return all(_holds(part, kind) for part in self.where)

    @property
    def equations(self) -> list[tuple[str, str]]:
        """Columns that must have a value: so that other rows need not be read."""
        return [
            (part.field.name, str(part.value))
            for part in self.where
            if isinstance(part, Condition)
            and part.comparison is Comparison.EQUAL
            and part.field.name in {"name", "run_type", "status", "model"}
        ]

    def by(self, attribute: str | None) -> Rolled:
        """The same with rows fine enough to be grouped."""
        needed = {"name": NAMES, "model": NAMES, "run_type": KINDS, "status": KINDS}
        return replace(self, cut=max(self.cut, needed.get(attribute or "", WHOLE)))


def bounded(query: RunQuery) -> RunQuery:
    """The query with the bounds of time that its filter states, where it states them for all."""
    if query.where is None:
        return query
    rest: list[Expression] = []
    begin, end = query.started_from, query.started_until
    for part in conjuncts(query.where):
        bounds = _time_bounds(part)
        if bounds is None:
            rest.append(part)
            continue
        low, high = bounds
        begin = low if begin is None or (low is not None and low > begin) else begin
        end = high if end is None or (high is not None and high < end) else end
    where = together(rest) if rest else None
    return replace(query, started_from=begin, started_until=end, where=where)


def scoped(query: RunQuery) -> RunQuery:
    """The query with what its filter says of roots as its own word: tokens depend on that."""
    if query.where is None or query.is_root is not None:
        return query
    parts = conjuncts(query.where)
    said = [is_root for part in parts if (is_root := _is_root(part)) is not None]
    if not said or len(set(said)) > 1:
        return query
    rest = [part for part in parts if _is_root(part) is None]
    where = together(rest) if rest else None
    return replace(query, is_root=said[0], where=where)


def rolled(query: RunQuery, *, depth: int | None = None) -> Rolled | None:
    """How rollups answer the query; None when they cannot."""
    others = (
        query.run_ids,
        query.trace_id,
        query.parent_run_id,
        query.reference_example_ids,
        query.where_root,
        query.where_any,
        query.where_thread,
    )
    if query.project_ids is None or any(other is not None for other in others):
        return None
    where: list[Expression] = []
    is_root = query.is_root
    for part in () if query.where is None else conjuncts(query.where):
        if (said := _is_root(part)) is not None and is_root in {None, said}:
            is_root = said
        elif is_known(part):
            where.append(part)
        else:
            return None
    if query.run_type is not None:
        where.append(Condition(BY_NAME["run_type"], Comparison.EQUAL, query.run_type))
    if query.has_error is not None:
        failed = Condition(BY_NAME["error"], Comparison.PRESENT)
        where.append(failed if query.has_error else Not(failed))
    scopes: tuple[int, ...]
    scopes = DEPTHS if is_root is None else (TRACES,) if is_root else DEPTHS[1:]
    if depth is not None:
        scopes = (depth,) if is_root is not True else ()
    cut = max((cut_of(part) for part in where), default=WHOLE)
    return Rolled(cut, scopes, tuple(where))


def conjuncts(where: Expression) -> list[Expression]:
    """The parts that must all hold."""
    if isinstance(where, And):
        return [part for one in where.parts for part in conjuncts(one)]
    return [where]


def together(parts: Sequence[Expression]) -> Expression:
    """What holds where each of the parts does; there is at least one."""
    return parts[0] if len(parts) == 1 else And(tuple(parts))


def equation(part: Expression, *names: str) -> str | None:
    """The value that the part asks one of these fields to have."""
    if (
        isinstance(part, Condition)
        and part.comparison is Comparison.EQUAL
        and part.field.name in names
    ):
        return str(part.value)
    return None


def _time_bounds(part: Expression) -> tuple[datetime | None, datetime | None] | None:
    if not isinstance(part, Condition) or part.field.name != "start_time":
        return None
    value = part.value
    if not isinstance(value, datetime):
        return None
    match part.comparison:
        case Comparison.AT_LEAST:
            return value, None
        case Comparison.GREATER:
            return value + _TICK, None
        case Comparison.AT_MOST:
            return None, value
        case Comparison.LESS:
            return None, value - _TICK
    return None


def _is_root(part: Expression) -> bool | None:
    if isinstance(part, Not):
        said = _is_root(part.part)
        return None if said is None else not said
    if (
        isinstance(part, Condition)
        and part.field.name == "is_root"
        and part.comparison is Comparison.EQUAL
    ):
        return bool(part.value)
    return None


def is_known(part: Expression) -> bool:
    """Whether rows of rollups tell if it holds."""
    match part:
        case And() | Or():
            return all(is_known(one) for one in part.parts)
        case Not():
            return is_known(part.part)
        case Condition():
            if part.field.name == "error":
                return part.comparison is Comparison.PRESENT
            if part.field.name == "execution_order":  # of the deeper ones only that they are
                return part.comparison is Comparison.EQUAL and part.value in {1, 2}
            return part.field.name in _VALUES
    return False


def cut_of(part: Expression) -> int:
    """How fine rows must be to tell."""
    match part:
        case And() | Or():
            return max(cut_of(one) for one in part.parts)
        case Not():
            return cut_of(part.part)
        case Condition():
            return _NEEDS.get(part.field.name, WHOLE)
    return WHOLE


def _holds(part: Expression, kind: Kind) -> bool:
    match part:
        case And():
            return all(_holds(one, kind) for one in part.parts)
        case Or():
            return any(_holds(one, kind) for one in part.parts)
        case Not():
            return not _holds(part.part, kind)
        case Condition():
            value = _VALUES[part.field.name](kind)
            return meets(value, part.comparison, part.value)
    raise AssertionError("only what `is_known` lets through")
