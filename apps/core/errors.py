"""Base classes of errors that callers see; apps subclass them and set code and detail.

Every error of a JSON route is `{"detail": str, "code": str, "errors": [...]}`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar


class AppError(Exception):
    """An error that is reported to the caller; other exceptions are bugs and result in a 500."""

    status: ClassVar[int] = 500
    code: ClassVar[str] = "error"
    detail: str = "Internal server error."
    headers: Mapping[str, str] = {}
    """Response headers, such as `Retry-After`."""

    def __init__(self, detail: str | None = None, errors: Sequence[dict[str, Any]] = ()) -> None:
        self.detail = detail or self.detail
        self.errors = list(errors)
        super().__init__(self.detail)

    def as_json(self) -> dict[str, Any]:
        return {"detail": self.detail, "code": self.code, "errors": self.errors}


class BadRequest(AppError):
    status, code, detail = 400, "bad_request", "Bad request."


class InvalidCursor(BadRequest):
    code, detail = "invalid_cursor", "The cursor is not valid. Use the cursor of the previous page."


class Unauthenticated(AppError):
    status, code, detail = 401, "unauthenticated", "Sign in or send a valid API key."


class Forbidden(AppError):
    status, code, detail = 403, "forbidden", "You do not have permission to do this."


class NotFound(AppError):
    status, code, detail = 404, "not_found", "Not found."


class MethodNotAllowed(AppError):
    status, code, detail = 405, "method_not_allowed", "Method not allowed."


class NotAcceptable(AppError):
    status, code, detail = 406, "not_acceptable", "The requested media type is not available."


class Conflict(AppError):
    status, code, detail = 409, "conflict", "The request conflicts with the current state."


class TooMany(Conflict):
    code = "too_many"


class TooLarge(AppError):
    status, code, detail = 413, "too_large", "The request is too large."


class UnsupportedMediaType(AppError):
    status, code = 415, "unsupported_media_type"
    detail = "The content type of the body is not supported."


class Invalid(AppError):
    status, code, detail = 422, "invalid", "The request is not valid."


class RateLimited(AppError):
    status, code, detail = 429, "rate_limited", "Too many requests."


class Unavailable(AppError):
    status, code, detail = 503, "unavailable", "Temporarily unavailable. Retry soon."
