"""Filters over stored runs: SQL where it can tell, the reference where it cannot."""

from apps.trace_store.store.filtering.compiling import Compiled, compile_where
from apps.trace_store.store.filtering.related import compile_where_any, compile_where_root

__all__ = ["Compiled", "compile_where", "compile_where_any", "compile_where_root"]
