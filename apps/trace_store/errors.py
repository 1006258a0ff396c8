"""Errors of filters, queries and prices, each with a stable code."""

from __future__ import annotations

from apps.core import errors


class FilterError(errors.BadRequest):
    """A filter that does not parse or does not apply; `errors` names the line and column."""

    code, detail = "filter_invalid", "The filter is not valid."


class InvalidCursor(errors.BadRequest):
    code, detail = "invalid_cursor", "The cursor was not issued by this server."


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
