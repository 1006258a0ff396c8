"""Filters over stored runs: SQL where it can tell, the reference where it cannot."""

from apps.tracing.store.filtering.compiling import Compiled, compile_where

__all__ = ["Compiled", "compile_where"]
