"""What can go wrong with usage, with stable codes."""

from __future__ import annotations

from datetime import datetime

from apps.core import errors


class UsageLimitExceeded(errors.RateLimited):
    """The workspace or its organization has used what it may in this hour or month."""

    code, detail = "usage_limit_exceeded", "A usage limit is exceeded."

    def __init__(self, detail: str, *, until: datetime, retry_after: int | None) -> None:
        super().__init__(detail, [{"resets_at": until.isoformat()}])
        # Clients sleep for as long as they are told, so a month is not told as seconds.
        self.headers = (
            {"x-should-retry": "false"}
            if retry_after is None
            else {"Retry-After": str(retry_after)}
        )
