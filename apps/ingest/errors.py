"""Errors of ingest requests, each with a stable code."""

from __future__ import annotations

from apps.core import errors


class BadBody(errors.BadRequest):
    """The body cannot be parsed, so nothing of it was stored."""

    code, detail = "bad_body", "The body cannot be parsed."


class RunsRejected(errors.Invalid):
    """Every item of the request was rejected; `errors` lists the reasons."""

    code, detail = "runs_refused", "No run of this request could be stored."


class DottedOrderRejected(errors.BadRequest):
    """Every item of the request was rejected because a dotted order contradicts the ids."""

    code, detail = "dotted_order_refused", "The dotted order contradicts the ids of the run."
