"""One comparison of an SQL expression with a value, as `filters.reference` has it."""

from __future__ import annotations

from apps.trace_store.filters.fields import Kind
from apps.trace_store.filters.nodes import Comparison, Condition
from apps.trace_store.filters.patterns import folded
from apps.trace_store.store.filtering.fragments import FALSE, Sql

_SIGNS = {
    Comparison.EQUAL: "=",
    Comparison.GREATER: ">",
    Comparison.AT_LEAST: ">=",
    Comparison.LESS: "<",
    Comparison.AT_MOST: "<=",
}


def compared(condition: Condition, expression: str, *values: object) -> Sql:
    """The condition on the expression; `values` are those that the expression needs itself."""
    comparison, wanted = condition.comparison, condition.value
    is_text = condition.field.kind in {Kind.TEXT, Kind.TEXTS}
    match comparison:
        case Comparison.PRESENT:
            return Sql(f"{expression} IS NOT NULL", values)
        case Comparison.AMONG if isinstance(wanted, tuple):
            return Sql(f"{expression} = ANY(%s)", (*values, list(wanted))) if wanted else FALSE
        case Comparison.LIKE:
            return Sql(f'{expression} COLLATE "C" LIKE %s', (*values, wanted))
        case Comparison.ILIKE:
            # By a collation of the server's own: the same on every system.
            lowered = f'lower({expression} COLLATE "pg_c_utf8")'
            return Sql(f"{lowered} LIKE %s", (*values, folded(str(wanted))))
    sign = _SIGNS[comparison]
    # Texts are in the order of their characters, whatever the database's language.
    collated = ' COLLATE "C"' if is_text and sign != "=" else ""
    return Sql(f"{expression}{collated} {sign} %s", (*values, wanted))
