"""Errors of calls to model providers, each with a stable code."""

from __future__ import annotations

from apps.core import errors


class UnknownProvider(errors.Invalid):
    code, detail = "unknown_provider", "This model provider is not supported."


class BadChatRequest(errors.Invalid):
    """The provider's API cannot express the request."""

    code, detail = "bad_chat_request", "The provider cannot process this request."


class AddressBlocked(errors.Invalid):
    code = "address_blocked"

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"The address of the provider is blocked: {reason}")


class NoProviderKey(errors.Conflict):
    code, detail = "no_provider_key", "The workspace has no key for this provider."


class KeyBoundToAddress(errors.Conflict):
    """A caller who changes the address of a provider would receive its key, which is write-only."""

    code = "key_bound_to_address"

    def __init__(self, key_name: str, base_url_name: str) -> None:
        super().__init__(
            f"The key {key_name} belongs to the present address. Send it again together with"
            f" {base_url_name}, or delete it first.",
            [{"secret": key_name}],
        )


class ProviderFailure(errors.AppError):
    """A call to a provider failed; `provider_status` is None if there was no response."""

    status, code, detail = 502, "provider_error", "The provider failed."

    def __init__(
        self,
        detail: str | None = None,
        *,
        provider_status: int | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(detail)
        self.provider_status, self.retry_after = provider_status, retry_after
        if retry_after is not None:
            self.headers = {"Retry-After": str(max(1, round(retry_after)))}


class ProviderUnreachable(ProviderFailure):
    code, detail = "provider_unreachable", "The provider cannot be reached."


class ProviderTimeout(ProviderFailure):
    status, code, detail = 504, "provider_timeout", "The provider did not respond in time."


class ResponseTooLarge(ProviderFailure):
    code, detail = "response_too_large", "The provider's response is too large."


class InvalidResponse(ProviderFailure):
    code, detail = "invalid_response", "The provider's response is not valid."


class ProviderRefused(ProviderFailure):
    """The provider refused the request as such: 4xx, but not for its key or its limits."""

    status, code, detail = 422, "provider_refused", "The provider refused the request."


class ProviderKeyRefused(ProviderFailure):
    status, code, detail = 409, "provider_key_refused", "The provider refused the key."


class ProviderRateLimited(ProviderFailure):
    status, code, detail = 429, "provider_rate_limited", "The provider limits the requests."
