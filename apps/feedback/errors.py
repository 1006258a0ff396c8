"""Errors of feedback, each with a stable code."""

from __future__ import annotations

from apps.core import errors


class InvalidFeedback(errors.Invalid):
    """One feedback cannot be parsed; `reason` is a stable code for the ingest log."""

    def __init__(self, detail: str, reason: str = "invalid") -> None:
        super().__init__(detail)
        self.reason = reason


class ProjectNotFound(errors.NotFound):
    code, detail = "project_not_found", "No such project."


class BadFeedbackConfig(errors.Invalid):
    code, detail = "bad_feedback_config", "The feedback config is not valid."


class FeedbackConfigExists(errors.BadRequest):
    """A key has one config; PATCH changes it."""

    code, detail = "feedback_config_exists", "Feedback config already exists for this key."


class FeedbackConfigEnforced(errors.Conflict):
    code, detail = "feedback_config_enforced", "The key already has an enforced config."


class FeedbackConfigContradicted(errors.BadRequest):
    code, detail = "feedback_config_contradicted", "The key has a different config."


class FeedbackOutOfBounds(errors.BadRequest):
    """The config of the key is enforced and does not allow the score or value."""

    code, detail = "feedback_out_of_bounds", "The config of the key does not allow this feedback."


class FeedbackIdTaken(errors.Conflict):
    code, detail = "feedback_id_taken", "This id cannot be used."


class FeedbackComputed(errors.Conflict):
    """The result of a formula changes only with its parts or with the formula."""

    code, detail = "feedback_computed", "This feedback is computed by a formula."


class FeedbackTokenUnknown(errors.NotFound):
    code, detail = "feedback_token_unknown", "No such token."


class FeedbackTokenExpired(errors.AppError):
    status, code, detail = 410, "feedback_token_expired", "The token has expired."


class FeedbackFormulaExists(errors.Conflict):
    code, detail = "feedback_formula_exists", "A formula for this key already exists."
