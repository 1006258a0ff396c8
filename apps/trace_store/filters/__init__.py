"""The filter language of runs, specified in docs/filter-language.md.

`parse` builds a tree of `nodes` from the API's language, `query_text.parse_query` from that of the
query bar; `formatting` writes both. `reference.matches` evaluates it for one run,
`postgres.filtering` compiles it to SQL, and `terms` derives the entries of the run index.
"""

from apps.trace_store.filters.builders import (
    all_of,
    join_filters,
    quote,
    search_filter,
    thread_filter,
)
from apps.trace_store.filters.nodes import Expression
from apps.trace_store.filters.parsing import parse

__all__ = [
    "Expression",
    "all_of",
    "join_filters",
    "parse",
    "quote",
    "search_filter",
    "thread_filter",
]
