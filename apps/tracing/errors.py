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


class DownloadExpired(errors.Forbidden):
    code, detail = "download_expired", "This link is not valid any more."


class FilterError(errors.BadRequest):
    """A filter that cannot be understood; `errors` names the line and column."""

    code, detail = "filter_invalid", "The filter cannot be understood."


class QueryTooSlow(errors.BadRequest):
    """A filter that would take minutes; what time there was went by without a single match."""

    code = "query_too_slow"
    detail = "This filter takes too long over so much time: narrow the time range or the filter."


class ThreadNotFound(errors.NotFound):
    code, detail = "trace_thread_not_found", "No trace belongs to this thread."


class NeedsModel(errors.AppError):
    """A search in plain language, which takes a language model that this server does not have."""

    status, code, detail = 501, "not_implemented", "This search needs a language model."


class ProjectNotFound(errors.NotFound):
    code, detail = "project_not_found", "No such project."


class BadFeedbackConfig(errors.Invalid):
    code, detail = "bad_feedback_config", "The feedback's config makes no sense."


class FeedbackConfigExists(errors.BadRequest):
    """A key has one config; PATCH changes it."""

    code, detail = "feedback_config_exists", "Feedback config already exists for this key."


class FeedbackConfigEnforced(errors.Conflict):
    code, detail = "feedback_config_enforced", "The key has an enforced config already."


class FeedbackConfigContradicted(errors.BadRequest):
    code, detail = "feedback_config_contradicted", "The key has another config."


class FeedbackOutOfBounds(errors.BadRequest):
    """The key's config is enforced, and the score or value does not fit it."""

    code, detail = "feedback_out_of_bounds", "The key does not take this score or value."


class FeedbackIdTaken(errors.Conflict):
    code, detail = "feedback_id_taken", "This id cannot be used."


class FeedbackComputed(errors.Conflict):
    """A formula's result changes when its parts or the formula do."""

    code, detail = "feedback_computed", "This feedback is computed by a formula."


class FeedbackTokenUnknown(errors.NotFound):
    code, detail = "feedback_token_unknown", "No such token."


class FeedbackTokenExpired(errors.AppError):
    status, code, detail = 410, "feedback_token_expired", "The token has expired."


class FeedbackFormulaExists(errors.Conflict):
    code, detail = "feedback_formula_exists", "There is a formula for this key already."


class ShareNotFound(errors.NotFound):
    code, detail = "share_not_found", "Nothing is shared under this link."


class ShareTokenTaken(errors.Conflict):
    code, detail = "share_token_taken", "This share token cannot be used."


class SharingForbidden(errors.Forbidden):
    code, detail = "sharing_forbidden", "Public sharing is turned off in this organization."


class BuiltInPrice(errors.Forbidden):
    code = "price_built_in"
    detail = "This price is built in: an entry of your own goes before it."


class TooManyPrices(errors.Invalid):
    code, detail = "too_many_prices", "The workspace has as many prices as it may have."
