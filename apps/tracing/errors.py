"""Errors of tracing, each with a stable code."""

from __future__ import annotations

from apps.core import errors


class ProjectNameTaken(errors.Conflict):
    code, detail = "project_name_taken", "A project of that name already exists."


class RunNotFound(errors.NotFound):
    code, detail = "run_not_found", "No such run."


class DownloadExpired(errors.Forbidden):
    code, detail = "download_expired", "This link is not valid any more."


class ThreadNotFound(errors.NotFound):
    code, detail = "trace_thread_not_found", "No trace belongs to this thread."


class NeedsModel(errors.AppError):
    """Raised for a plain-language search, which needs a language model that is not configured."""

    status, code, detail = 501, "not_implemented", "This search needs a language model."


class ProjectNotFound(errors.NotFound):
    code, detail = "project_not_found", "No such project."


class ShareNotFound(errors.NotFound):
    code, detail = "share_not_found", "Nothing is shared under this link."


class ShareTokenTaken(errors.Conflict):
    code, detail = "share_token_taken", "This share token cannot be used."


class SharingForbidden(errors.Forbidden):
    code, detail = "sharing_forbidden", "Public sharing is turned off in this organization."
