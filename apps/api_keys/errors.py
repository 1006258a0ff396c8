from typing import Any

from apps.core import errors


class WorkspaceRequired(errors.Forbidden):
    """SDK clients recognize this `error` and explain how to name the workspace."""

    code = "org_scoped_key_requires_workspace"
    detail = "The API key has access to several workspaces. Name one in X-Tenant-Id."

    def as_json(self) -> dict[str, Any]:
        return super().as_json() | {"error": self.code}


class PersonalKeysDisabled(errors.Forbidden):
    code = "personal_keys_disabled"
    detail = "Personal keys are disabled in this organization."


class KeyLifetimeTooLong(errors.Invalid):
    code = "key_lives_too_long"
    detail = "`expires_at` exceeds the organization's maximum key lifetime."


class OAuthError(errors.BadRequest):
    """An error of the token routes; `error` and `error_description` are those of RFC 6749."""

    code = "invalid_request"
    detail = "The request is incomplete."
    headers = {"Cache-Control": "no-store"}

    def as_json(self) -> dict[str, Any]:
        return super().as_json() | {"error": self.code, "error_description": self.detail}


class InvalidClient(OAuthError):
    status = 401
    code, detail = "invalid_client", "`client_id` is not a client of this installation."


class InvalidClientMetadata(OAuthError):
    code, detail = "invalid_client_metadata", "The client's metadata is not valid."


class InvalidRedirectUri(OAuthError):
    code = "invalid_redirect_uri"
    detail = (
        "A redirect address must begin with https://, be http:// with a loopback host, or have a"
        " scheme of the client's own; without fragment and credentials."
    )


class InvalidTarget(OAuthError):
    code, detail = "invalid_target", "`resource` is not the API of this installation."


class InvalidGrant(OAuthError):
    code, detail = "invalid_grant", "The code or token is unknown, used, expired or revoked."


class UnsupportedResponseType(OAuthError):
    code, detail = "unsupported_response_type", "`response_type` must be `code`."


class UnsupportedGrantType(OAuthError):
    code = "unsupported_grant_type"
    detail = "`grant_type` must be `authorization_code`, the device code or `refresh_token`."


class AuthorizationPending(OAuthError):
    code, detail = "authorization_pending", "The user has not approved the sign-in yet."


class SlowDown(OAuthError):
    code, detail = "slow_down", "Requests come too often. Wait five seconds longer each time."


class AccessDenied(OAuthError):
    code, detail = "access_denied", "The user denied the sign-in."


class DeviceCodeExpired(OAuthError):
    code, detail = "expired_token", "The code has expired. Start the sign-in again."


class UnknownUserCode(errors.NotFound):
    """An unknown, expired or used code: the three are indistinguishable."""

    code = "unknown_user_code"
    detail = "This code is not valid or has expired. Start the sign-in again in the client."


class KeyOfClientSession(errors.Conflict):
    code = "key_of_client_session"
    detail = "The client renews this key by itself. Revoke it to end the sign-in."
