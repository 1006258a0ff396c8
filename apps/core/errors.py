"""What can go wrong, in few kinds; apps subclass a kind and fix code and wording.

Every failure on every JSON route leaves as `{"detail": str, "code": str, "errors": [...]}`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar


class AppError(Exception):
    """A failure that the caller can understand; anything else is a bug and answers 500."""

    status: ClassVar[int] = 500
    code: ClassVar[str] = "error"
    detail: str = "Something went wrong."
    headers: Mapping[str, str] = {}
    """What else the answer says, such as when to come again."""

    def __init__(self, detail: str | None = None, errors: Sequence[dict[str, Any]] = ()) -> None:
        self.detail = detail or self.detail
        self.errors = list(errors)
        super().__init__(self.detail)

    def as_json(self) -> dict[str, Any]:
        return {"detail": self.detail, "code": self.code, "errors": self.errors}


class BadRequest(AppError):
    status, code, detail = 400, "bad_request", "The request makes no sense as it stands."


class Unauthenticated(AppError):
    status, code, detail = 401, "unauthenticated", "Sign in or send a valid API key."


class Forbidden(AppError):
    status, code, detail = 403, "forbidden", "You may not do this."


class NotFound(AppError):
    status, code, detail = 404, "not_found", "Not found."


class MethodNotAllowed(AppError):
    status, code, detail = 405, "method_not_allowed", "Method not allowed."


class NotAcceptable(AppError):
    status, code, detail = 406, "not_acceptable", "The answer cannot be given in that form."


class Conflict(AppError):
    status, code, detail = 409, "conflict", "This conflicts with what is there."


class TooLarge(AppError):
    status, code, detail = 413, "too_large", "The request is too large."


class UnsupportedMediaType(AppError):
    status, code, detail = 415, "unsupported_media_type", "This kind of body is not understood."


class Invalid(AppError):
    status, code, detail = 422, "invalid", "The request is not valid."


class RateLimited(AppError):
    status, code, detail = 429, "rate_limited", "Too many requests."


class Unavailable(AppError):
    status, code, detail = 503, "unavailable", "Not available at the moment; try again soon."
