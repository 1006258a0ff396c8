"""Compiles filters to SQL; the reference evaluator decides the rest."""

from apps.trace_store.postgres.filtering.compiler import (
    CompiledFilter,
    compile_where,
    compile_where_any,
    compile_where_root,
)

__all__ = ["CompiledFilter", "compile_where", "compile_where_any", "compile_where_root"]
