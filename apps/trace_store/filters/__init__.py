"""The filter language of runs, specified in docs/filter-language.md.

`parse` builds a tree of `nodes` from text. `reference.matches` evaluates it for one run,
`postgres.filtering` compiles it to SQL, and `terms` derives the entries of the run index.
"""

from apps.trace_store.filters.builders import all_of, quote, search_filter, thread_filter
from apps.trace_store.filters.nodes import Expression
from apps.trace_store.filters.parsing import parse

__all__ = ["Expression", "all_of", "parse", "quote", "search_filter", "thread_filter"]
