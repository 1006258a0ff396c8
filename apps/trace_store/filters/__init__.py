"""The filter language of runs: docs/filter-language.md is its specification.

`parse` makes the tree of `nodes` from text; `reference.matches` says what it means, one run at a
time; `store.filtering` asks PostgreSQL the same; `terms` is what an index of runs holds.
"""

from apps.trace_store.filters.builders import all_of, quote
from apps.trace_store.filters.nodes import Expression
from apps.trace_store.filters.parsing import parse

__all__ = ["Expression", "all_of", "parse", "quote"]
