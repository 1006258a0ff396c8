"""Errors of feedback, each with a stable code."""

from __future__ import annotations

from apps.core import errors


class InvalidFeedback(errors.Invalid):
    """A feedback item cannot be parsed; `reason` is a stable code for the ingest log."""

    def __init__(self, detail: str, reason: str = "invalid") -> None:
        super().__init__(detail)
        self.reason = reason


class BadFeedbackConfig(errors.Invalid):
    code, detail = "bad_feedback_config", "The feedback config is invalid."


class FeedbackConfigExists(errors.BadRequest):
    """The key has a config already; PATCH changes it."""

    code, detail = "feedback_config_exists", "Feedback config already exists for this key."


class FeedbackConfigEnforced(errors.Conflict):
    code, detail = "feedback_config_enforced", "The key already has an enforced config."


class FeedbackConfigContradicted(errors.BadRequest):
    code, detail = "feedback_config_contradicted", "The key already has a different config."


class FeedbackOutOfBounds(errors.BadRequest):
    """The enforced config of the key does not allow the score or value."""

    code, detail = "feedback_out_of_bounds", "The config of the key does not allow this feedback."


class FeedbackIdTaken(errors.Conflict):
    code, detail = "feedback_id_taken", "This feedback `id` cannot be used; choose another."


class FeedbackComputed(errors.Conflict):
    """Computed feedback is changed through its formula or through the feedback on its parts."""

    code, detail = (
        "feedback_computed",
        "This feedback is computed by a formula and cannot be changed directly.",
    )


class FeedbackTokenUnknown(errors.NotFound):
    code, detail = "feedback_token_unknown", "No such token."


class FeedbackTokenExpired(errors.AppError):
    status, code, detail = 410, "feedback_token_expired", "The token has expired."


class FeedbackFormulaExists(errors.Conflict):
    code, detail = "feedback_formula_exists", "A formula for this key already exists."
