"""Errors of the playground, each with a stable code."""

from __future__ import annotations

from apps.core import errors


class BadSetting(errors.Invalid):
    code, detail = "bad_playground_setting", "The setting of the column is not valid."


class MissingVariables(errors.Invalid):
    """The prompt has variables that the request does not name; `errors` lists them."""

    code, detail = "missing_variables", "The prompt has variables without a value."

    def __init__(self, names: list[str]) -> None:
        super().__init__(
            f"These variables have no value: {', '.join(names)}.",
            [{"field": name} for name in names],
        )


class PlaygroundBusy(errors.RateLimited):
    code = "playground_busy"
    detail = "The organization has the maximum of open calls of models. Retry when one has ended."
    headers = {"Retry-After": "2"}


class PlaygroundShareNotFound(errors.NotFound):
    code, detail = "playground_share_not_found", "No such shared setting in the workspace."


class SettingsNotFound(errors.NotFound):
    code, detail = "playground_settings_not_found", "No such saved settings in the workspace."


class ToolAddressBlocked(errors.Invalid):
    code = "tool_address_blocked"

    def __init__(self, reason: str) -> None:
        super().__init__(f"The address of the tool is blocked: {reason}")


class ToolFailed(errors.AppError):
    """The webhook of a tool did not respond, or not with a result."""

    status, code, detail = 502, "tool_failed", "The tool failed."


class ToolTimeout(ToolFailed):
    status, code = 504, "tool_timeout"


class CannotPrefill(errors.Invalid):
    """The source has no messages that the playground could show."""

    code, detail = "cannot_prefill", "The source has no messages."


class QueryNotWritten(errors.AppError):
    """The model's answer is no query."""

    status, code, detail = 502, "query_not_written", "The model wrote no valid query."
