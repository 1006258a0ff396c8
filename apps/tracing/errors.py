"""What can go wrong with traces, each with a stable code."""

from __future__ import annotations

from apps.core import errors


class InvalidCursor(errors.BadRequest):
    code, detail = "invalid_cursor", "The cursor is not one that this server gave out."


class ProjectNameTaken(errors.Conflict):
    code, detail = "project_name_taken", "A project of that name already exists."


class RunNotFound(errors.NotFound):
    code, detail = "run_not_found", "No such run."


class BadBody(errors.BadRequest):
    """The body cannot be read at all, so nothing of it was stored."""

    code, detail = "bad_body", "The body cannot be read."


class RunsRefused(errors.Invalid):
    """Every run of the request was refused; `errors` says why, one by one."""

    code, detail = "runs_refused", "No run of this request could be stored."


class DottedOrderRefused(errors.BadRequest):
    """The ids of a run and its place in the tree contradict each other."""

    code, detail = "dotted_order_refused", "The dotted order does not fit the run."


class NotSupported(errors.BadRequest):
    """A part of the request that would change the answer and is not understood yet."""

    code, detail = "not_supported", "This server does not understand a part of the request yet."


class DownloadExpired(errors.Forbidden):
    code, detail = "download_expired", "This link is not valid any more."


class FilterError(errors.BadRequest):
    """A filter that cannot be understood; `errors` names the line and column."""

    code, detail = "filter_invalid", "The filter cannot be understood."
