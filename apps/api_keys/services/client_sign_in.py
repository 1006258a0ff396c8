"""Sign-in of command-line clients by the device flow (RFC 8628), and the tokens of all clients.

The access token is the secret of a personal key, so it is accepted where keys are, acts as its
user, and is listed and revoked with the user's keys. Only digests are stored.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from django.db import transaction
from django.db.models import Q
from django.utils import timezone
from django.utils.crypto import salted_hmac

from apps.api_keys import errors
from apps.api_keys.models import (
    ApiKey,
    AuthorizationCode,
    ClientSession,
    DeviceLogin,
    DeviceLoginState,
)
from apps.api_keys.services.issue_keys import issue_personal_key, latest_expiry, revoke_key
from apps.api_keys.services.key_lookup import (
    ACCESS_PREFIX,
    digest,
    find_rejection,
    generate_secret,
    visible_prefix,
)
from apps.api_keys.services.oauth_clients import find_client
from apps.audit.actions import Action
from apps.core import errors as core_errors
from apps.organizations.models import User
from apps.organizations.permissions import OrganizationPermission
from apps.organizations.services import caller_for, organization_caller_for
from apps.organizations.services.members import record_user_action

CLIENTS = {"langsmith-cli": "LangSmith CLI"}
"""Display names by client id. The public clients identify themselves by this id, without secret."""

REFRESH_PREFIX = "slip_rt_"
CODE_ALPHABET = "BCDFGHJKLMNPQRSTVWXZ"
"""Without vowels and similar characters (RFC 8628, section 6.1)."""
CODE_LENGTH = 8
LOGIN_LIFETIME = timedelta(minutes=10)
ACCESS_LIFETIME = timedelta(hours=1)
SESSION_LIFETIME = timedelta(days=90)
"""Or less, by the organization's limit for keys."""
POLL_INTERVAL_SECONDS = 5
MAX_POLL_INTERVAL_SECONDS = 60
REPEAT_INTERVAL = timedelta(seconds=30)
"""A client whose response was lost may repeat a refresh; later reuse ends the session."""


@dataclass(frozen=True)
class DeviceCodes:
    device_code: str
    user_code: str


@dataclass(frozen=True)
class Tokens:
    access_token: str
    refresh_token: str
    expires_in: int
    scope: str


def check_client(client_id: str) -> None:
    if client_id not in CLIENTS:
        raise errors.InvalidClient


def start_login(*, client_id: str, address: str | None, audience: str = "") -> DeviceCodes:
    """Create the login and return its codes, which are not stored.

    `audience` is the only MCP server that accepts its tokens; empty for no limit.
    """
    check_client(client_id)
    codes = DeviceCodes(
        secrets.token_urlsafe(32),
        "".join(secrets.choice(CODE_ALPHABET) for _ in range(CODE_LENGTH)),
    )
    DeviceLogin.objects.create(
        client_id=client_id,
        device_digest=digest(codes.device_code),
        user_code_digest=_digest_user_code(codes.user_code),
        address=address,
        audience=audience,
        interval_seconds=POLL_INTERVAL_SECONDS,
        expires_at=timezone.now() + LOGIN_LIFETIME,
    )
    return codes


def find_pending_login(user_code: str) -> DeviceLogin:
    """Return the login that awaits a decision; case, spaces and dashes do not matter."""
    row = DeviceLogin.objects.filter(
        user_code_digest=_digest_user_code(user_code),
        state=DeviceLoginState.PENDING,
        expires_at__gt=timezone.now(),
    ).first()
    if row is None:
        raise errors.UnknownUserCode
    return row


@transaction.atomic
def approve_login(*, user_code: str, user: User, workspace_id: UUID, scope: str) -> ApiKey:
    """Create the user's key for the client, which gets its secret by `exchange_device_code`.

    The key belongs to the workspace's organization; the workspace is its default. Raises
    `UnknownUserCode`, `NotFound` for a workspace without access, `Forbidden` for a user who may
    not create personal keys.
    """
    login = _lock_pending_login(user_code)
    caller = caller_for(user=user, workspace_id=workspace_id)
    if caller is None:
        raise core_errors.NotFound("No such workspace.")
    member = organization_caller_for(user=user, organization_id=caller.organization_id)
    if member is None:
        raise core_errors.NotFound("No such organization.")
    member.require(OrganizationPermission.PERSONAL_KEYS_CREATE)
    key, _ = issue_personal_key(
        organization_id=caller.organization_id,
        person=user,
        name=CLIENTS[login.client_id],
        scopes=[scope],
        workspace_id=workspace_id,
        expires_at=login.expires_at,
        audience=login.audience,
    )
    login.state, login.key = DeviceLoginState.APPROVED, key
    login.save(update_fields=["state", "key"])
    return key


@transaction.atomic
def deny_login(*, user_code: str, user: User) -> None:
    login = _lock_pending_login(user_code)
    login.state = DeviceLoginState.DENIED
    login.save(update_fields=["state"])
    record_user_action(Action.CLIENT_SIGN_IN_DENIED, user)


def exchange_device_code(*, client_id: str, device_code: str) -> Tokens:
    """Return the tokens of an approved login, once. Raises the errors of RFC 8628 until then."""
    check_client(client_id)
    with transaction.atomic():
        rows = DeviceLogin.objects.select_for_update()
        login = rows.filter(device_digest=digest(device_code), client_id=client_id).first()
        if login is None:
            raise errors.InvalidGrant
        failure = _check_poll(login)
        if failure is None:
            return _open_session(login)
    # Raised after the commit, which stores the time of the poll and a longer interval.
    raise failure


def refresh_tokens(*, client_id: str, refresh_token: str, audience: str | None) -> Tokens:
    """Replace both tokens of a session. The refresh token is spent.

    `audience`: that of the request, if it names an MCP server. Raises `InvalidTarget` for another
    than that of a session with an audience.
    The previous access token stays valid until its expiry, for requests in flight and for other
    processes that read the same profile. A refresh token that was spent earlier ends the session:
    another process has a copy of it.
    """
    stored_id = client_id if client_id in CLIENTS else find_client(client_id).stored_id
    token_digest = digest(refresh_token)
    with transaction.atomic():
        session = _lock_session(stored_id, token_digest)
        if session is None:
            raise errors.InvalidGrant
        if session.key.audience and audience not in {None, session.key.audience}:
            raise errors.InvalidTarget
        is_current = bytes(session.refresh_digest) == token_digest
        if is_current or session.refreshed_at > timezone.now() - REPEAT_INTERVAL:
            return _renew(session, token_digest)
        revoke_key(key=session.key)
    raise errors.InvalidGrant


def end_sessions() -> None:
    """Revoke the keys of sessions that are over, and delete expired logins. Safe to repeat."""
    now = timezone.now()
    for session in ClientSession.objects.filter(expires_at__lte=now, key__revoked_at=None):
        revoke_key(key=session.key)
    expired = DeviceLogin.objects.filter(expires_at__lte=now)
    codes = AuthorizationCode.objects.filter(expires_at__lte=now)
    is_approved = Q(device_login__in=expired) | Q(authorization_code__in=codes)
    for key in ApiKey.objects.unrevoked().filter(is_approved, client_session=None):
        revoke_key(key=key)  # the client never came back
    expired.delete()
    codes.delete()


def _check_poll(login: DeviceLogin) -> errors.OAuthError | None:
    """Note the poll; return why there are no tokens, or None."""
    now = timezone.now()
    if login.expires_at <= now:
        return errors.DeviceCodeExpired()
    previous, interval = login.last_polled_at, timedelta(seconds=login.interval_seconds)
    is_too_early = previous is not None and now < previous + interval
    login.last_polled_at = now
    if is_too_early:
        longer = login.interval_seconds + POLL_INTERVAL_SECONDS
        login.interval_seconds = min(longer, MAX_POLL_INTERVAL_SECONDS)
    login.save(update_fields=["last_polled_at", "interval_seconds"])
    if is_too_early:
        return errors.SlowDown()
    if login.state == DeviceLoginState.DENIED:
        return errors.AccessDenied()
    return errors.AuthorizationPending() if login.state == DeviceLoginState.PENDING else None


def _open_session(login: DeviceLogin) -> Tokens:
    if login.key_id is None:  # the table's constraint excludes it
        raise errors.InvalidGrant
    login.delete()
    return open_session(login.key_id, login.client_id)


def open_session(key_id: UUID, client_id: str) -> Tokens:
    """Give the client the secret of an approved key, and a session to refresh it."""
    key = _lock_usable_key(key_id)
    now, refresh_token = timezone.now(), generate_secret(REFRESH_PREFIX)
    session = ClientSession.objects.create(
        key=key,
        client_id=client_id,
        refresh_digest=digest(refresh_token),
        refreshed_at=now,
        expires_at=latest_expiry(key.organization, now + SESSION_LIFETIME),
    )
    return _issue(session, key, refresh_token)


def _renew(session: ClientSession, spent_digest: bytes) -> Tokens:
    key = _lock_usable_key(session.key_id)
    refresh_token, now = generate_secret(REFRESH_PREFIX), timezone.now()
    session.previous_refresh_digest = spent_digest
    session.refresh_digest, session.refreshed_at = digest(refresh_token), now
    session.save(update_fields=["previous_refresh_digest", "refresh_digest", "refreshed_at"])
    key.previous_digest, key.previous_prefix = bytes(key.digest), key.prefix
    key.previous_until, key.previous_used_at = key.expires_at, key.last_used_at
    return _issue(session, key, refresh_token)


def _issue(session: ClientSession, key: ApiKey, refresh_token: str) -> Tokens:
    """Give the key a new secret, which is the access token."""
    now, access_token = timezone.now(), generate_secret(ACCESS_PREFIX)
    key.digest, key.prefix = digest(access_token), visible_prefix(access_token)
    key.expires_at = min(now + ACCESS_LIFETIME, session.expires_at)
    key.save()
    expires_in = int((key.expires_at - now).total_seconds())
    return Tokens(access_token, refresh_token, expires_in, " ".join(key.scopes))


def _lock_session(client_id: str, token_digest: bytes) -> ClientSession | None:
    """Return the session of a current or spent refresh token, unless it is over."""
    rows = (
        ClientSession.objects.select_for_update(of=("self",))
        .select_related("key")
        .filter(client_id=client_id, expires_at__gt=timezone.now(), key__revoked_at=None)
    )
    current = rows.filter(refresh_digest=token_digest).first()
    return current or rows.filter(previous_refresh_digest=token_digest).first()


def _lock_usable_key(key_id: UUID) -> ApiKey:
    """Return the key, locked; raises `InvalidGrant` if it was revoked or its user may not use it.

    Memberships are not checked here: a member who leaves the organization loses the key.
    """
    rows = ApiKey.objects.select_for_update(no_key=True, of=("self",)).unrevoked()
    key = rows.select_related("person", "organization").filter(pk=key_id).first()
    if key is None or find_rejection(key) is not None:
        raise errors.InvalidGrant
    return key


def _lock_pending_login(user_code: str) -> DeviceLogin:
    """Lock the login, so that one decision is made once."""
    login = find_pending_login(user_code)
    rows = DeviceLogin.objects.select_for_update().filter(pk=login.pk)
    locked = rows.filter(state=DeviceLoginState.PENDING).first()
    if locked is None:
        raise errors.UnknownUserCode
    return locked


def _digest_user_code(user_code: str) -> bytes:
    code = "".join(character for character in user_code.upper() if character in CODE_ALPHABET)
    return salted_hmac("api_keys.device_login", code, algorithm="sha256").digest()
