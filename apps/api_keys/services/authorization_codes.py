"""Sign-in of clients in the browser: authorization codes with PKCE (RFC 6749, RFC 7636).

The user's consent creates a personal key for one MCP server. Its client exchanges the code for the
key's secret, once, and refreshes it as clients of the device flow do (`client_sign_in`).
"""

from __future__ import annotations

import base64
import hashlib
import re
import secrets
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from django.db import transaction
from django.utils import timezone
from django.utils.crypto import constant_time_compare

from apps.api_keys import errors
from apps.api_keys.models import AuthorizationCode
from apps.api_keys.services import client_sign_in
from apps.api_keys.services.client_sign_in import Tokens
from apps.api_keys.services.issue_keys import issue_personal_key, revoke_key
from apps.api_keys.services.key_lookup import digest
from apps.api_keys.services.oauth_clients import OAuthClient, find_client
from apps.audit.actions import Action
from apps.core import errors as core_errors
from apps.organizations.models import User
from apps.organizations.permissions import OrganizationPermission
from apps.organizations.services import caller_for, organization_caller_for
from apps.organizations.services.members import record_user_action

LIFETIME = timedelta(minutes=1)
"""The client gets the code at once."""
CHALLENGE = re.compile(r"[A-Za-z0-9_-]{43}")
_VERIFIER = re.compile(r"[A-Za-z0-9._~-]{43,128}")


@dataclass(frozen=True, slots=True)
class Consent:
    """What a client asks for, checked, and what the user allows."""

    client: OAuthClient
    redirect_uri: str
    challenge: str
    audience: str
    workspace_id: UUID
    scope: str


@transaction.atomic
def grant_code(consent: Consent, *, user: User) -> str:
    """Create the user's key for the client, and return the code for its secret.

    Raises `NotFound` for a workspace without access, `Forbidden` for a user who may not create
    personal keys.
    """
    caller = caller_for(user=user, workspace_id=consent.workspace_id)
    if caller is None:
        raise core_errors.NotFound("No such workspace.")
    member = organization_caller_for(user=user, organization_id=caller.organization_id)
    if member is None:
        raise core_errors.NotFound("No such organization.")
    member.require(OrganizationPermission.PERSONAL_KEYS_CREATE)
    expires_at = timezone.now() + LIFETIME
    key, _ = issue_personal_key(
        organization_id=caller.organization_id,
        person=user,
        name=consent.client.name,
        scopes=[consent.scope],
        workspace_id=consent.workspace_id,
        expires_at=expires_at,
        audience=consent.audience,
    )
    code = secrets.token_urlsafe(32)
    AuthorizationCode.objects.create(
        digest=digest(code),
        client_id=consent.client.stored_id,
        redirect_uri=consent.redirect_uri,
        challenge=consent.challenge,
        key=key,
        expires_at=expires_at,
    )
    return code


def deny(user: User) -> None:
    record_user_action(Action.CLIENT_SIGN_IN_DENIED, user)


def exchange_code(
    *, client_id: str, code: str, redirect_uri: str, verifier: str, audience: str | None
) -> Tokens:
    """Return the tokens of a code, once. `audience`: that of the request, if it names a resource.

    A code that comes with a wrong field is spent, and its second use ends the session: in both
    cases the code has leaked.
    """
    client = find_client(client_id)
    with transaction.atomic():
        rows = AuthorizationCode.objects.select_for_update(of=("self",)).select_related("key")
        row = rows.filter(digest=digest(code)).first()
        if row is None:
            raise errors.InvalidGrant
        is_first, now = row.used_at is None, timezone.now()
        row.used_at = now
        row.save(update_fields=["used_at"])
        if (
            is_first
            and row.expires_at > now
            and row.client_id == client.stored_id
            and row.redirect_uri == redirect_uri
            and _matches(verifier, row.challenge)
            and audience in {None, row.key.audience}
        ):
            return client_sign_in.open_session(row.key_id, client.stored_id)
        revoke_key(key=row.key)
    # Raised after the commit, which spends the code.
    raise errors.InvalidGrant


def _matches(verifier: str, challenge: str) -> bool:
    if not _VERIFIER.fullmatch(verifier):
        return False
    hashed = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest())
    return constant_time_compare(hashed.rstrip(b"=").decode(), challenge)
