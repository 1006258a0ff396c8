"""Errors of filters, queries, writes and prices; errors of requests have a stable code."""

from __future__ import annotations

from apps.core import errors


class FilterError(errors.BadRequest):
    """A filter that does not parse or does not apply; `errors` names the line and column."""

    code, detail = "filter_invalid", "The filter is not valid."


class ProjectNotFound(errors.NotFound):
    code, detail = "project_not_found", "No such project."


class QueryTooSlow(errors.BadRequest):
    """The query found no match within its time limit."""

    code = "query_too_slow"
    detail = "The query took too long: narrow the time range or the filter."


class BuiltInPrice(errors.Forbidden):
    code = "price_built_in"
    detail = (
        "This price is built in and cannot be changed: add an entry of your own to override it."
    )


class TooManyPrices(errors.Invalid):
    code, detail = "too_many_prices", "The workspace has reached its limit of model prices."


class WriteConflict(Exception):
    """A run of an optimistic write exists or is being written; repeat without `optimistic`."""
