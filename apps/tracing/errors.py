"""Errors of tracing, each with a stable code."""

from __future__ import annotations

from apps.core import errors


class ProjectNameTaken(errors.Conflict):
    code, detail = "project_name_taken", "A project with this name already exists."


class RunNotFound(errors.NotFound):
    code, detail = "run_not_found", "No such run."


class DownloadExpired(errors.Forbidden):
    code, detail = "download_expired", "The download link is invalid or has expired."


class TraceThreadNotFound(errors.NotFound):
    code, detail = "trace_thread_not_found", "No trace belongs to this thread."


class NeedsModel(errors.AppError):
    """Raised for a plain-language search, which needs a language model that is not configured."""

    status, code, detail = (
        501,
        "not_implemented",
        "This search needs a language model, which is not configured.",
    )


class DatasetNotFound(errors.NotFound):
    # Clients take any other 404 of a bulk change for a route that the server lacks.
    code, detail = "dataset_not_found", "Dataset not found."


class ShareNotFound(errors.NotFound):
    code, detail = "share_not_found", "The link does not exist or has been revoked."


class ShareTokenTaken(errors.Conflict):
    code, detail = "share_token_taken", "This `share_token` cannot be used; choose another."


class SharingForbidden(errors.Forbidden):
    code, detail = "sharing_forbidden", "Public sharing is turned off in this organization."
