"""Errors of usage limits."""

from __future__ import annotations

from datetime import datetime

from apps.core import errors


class UsageLimitExceeded(errors.RateLimited):
    """A limit of the workspace or its organization is used up for the hour or month."""

    code, detail = "usage_limit_exceeded", "A usage limit is exceeded."

    def __init__(self, detail: str, *, until: datetime, retry_after: int | None) -> None:
        super().__init__(detail, [{"resets_at": until.isoformat()}])
        # Clients sleep for Retry-After, so a monthly limit sends none.
        self.headers = (
            {"x-should-retry": "false"}
            if retry_after is None
            else {"Retry-After": str(retry_after)}
        )
