"""Filters over stored runs: SQL where it can tell, the reference where it cannot."""

from apps.tracing.store.filtering.compiling import Compiled, compile_where
from apps.tracing.store.filtering.queries import QueryFilter, filter_of

__all__ = ["Compiled", "QueryFilter", "compile_where", "filter_of"]
