"""Revalidation of the credentials of open streams and sockets.

The credentials of all open connections of a process are checked together, in a constant number of
queries. A revoked or expired key, a signed-out session, a removed member or a lost permission ends
a stream within a second.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from uuid import UUID
from weakref import WeakKeyDictionary

from django.contrib.sessions.models import Session
from django.utils import timezone

from apps.api_keys.services import callers_for_keys, digest
from apps.core import errors
from apps.core.callers import Caller
from apps.core.sync_bridge import in_thread
from apps.organizations.models import User
from apps.organizations.services import callers_for

log = logging.getLogger(__name__)

REVALIDATION_INTERVAL_SECONDS = 0.8
"""Equals the cache time of key look-ups."""

NO_USER = UUID(int=0)

OnRejected = Callable[[errors.AppError], None]


@dataclass(frozen=True, slots=True)
class Credential:
    """A key or session, with the workspace and the permission that it was checked for."""

    workspace_id: UUID
    permission: str
    key: bytes = b""
    """The digest of a key's secret."""
    session: str = ""
    user_id: UUID = NO_USER
    session_hash: str = ""
    """Changes with the password."""


def key_credential(secret: str, workspace_id: UUID, permission: str) -> Credential:
    return Credential(workspace_id, permission, key=digest(secret))


def session_credential(session: str, user: User, workspace_id: UUID, permission: str) -> Credential:
    session_hash = user.get_session_auth_hash()
    return Credential(workspace_id, permission, b"", session, user.pk, session_hash)


@contextlib.contextmanager
def revalidating(credential: Credential | None, on_rejected: OnRejected) -> Iterator[None]:
    """Call `on_rejected` once, on this loop, when the credential is no longer accepted.

    Without a credential there is no check: the agent's own authentication admitted the client.
    """
    if credential is None:
        yield
        return
    loop = asyncio.get_running_loop()
    revalidator = _revalidators.get(loop)
    if revalidator is None:
        revalidator = _revalidators[loop] = _Revalidator()
    number = revalidator.add(credential, on_rejected)
    try:
        yield
    finally:
        revalidator.remove(credential, number)


def find_rejected(credentials: Collection[Credential]) -> dict[Credential, errors.AppError]:
    """Return the credentials that are no longer accepted, with their errors."""
    by_key = [credential for credential in credentials if credential.key]
    by_session = [credential for credential in credentials if not credential.key]
    callers: dict[Credential, Caller | errors.AppError] = {}
    if by_key:
        key_callers = callers_for_keys(
            {(credential.key, credential.workspace_id) for credential in by_key}
        )
        invalid = errors.Unauthenticated("The API key is no longer valid.")
        callers |= {
            credential: key_callers.get((credential.key, credential.workspace_id), invalid)
            for credential in by_key
        }
    if by_session:
        callers |= _session_callers(by_session)
    rejected = {}
    for credential, caller in callers.items():
        if isinstance(caller, errors.AppError):
            rejected[credential] = caller
        elif not caller.may(credential.permission):
            rejected[credential] = errors.Forbidden(
                f"Permission {credential.permission} is required."
            )
    return rejected


def _session_callers(
    credentials: Collection[Credential],
) -> dict[Credential, Caller | errors.AppError]:
    rows = Session.objects.filter(
        session_key__in={credential.session for credential in credentials}
    )
    open_now = set(rows.filter(expire_date__gt=timezone.now()).values_list("pk", flat=True))
    users = User.objects.filter(is_active=True).in_bulk(
        {credential.user_id for credential in credentials}
    )
    hashes = {pk: user.get_session_auth_hash() for pk, user in users.items()}
    callers = callers_for(
        {(credential.user_id, credential.workspace_id) for credential in credentials}
    )
    signed_out = errors.Unauthenticated("The session has ended. Sign in again.")
    no_access = errors.NotFound("No such workspace.")
    return {
        credential: (
            callers.get((credential.user_id, credential.workspace_id), no_access)
            if credential.session in open_now
            and hashes.get(credential.user_id) == credential.session_hash
            else signed_out
        )
        for credential in credentials
    }


class _Revalidator:
    """The open connections of one event loop; its task runs while any connection is open."""

    def __init__(self) -> None:
        self._callbacks: dict[Credential, dict[int, OnRejected]] = {}
        self._numbers = itertools.count()
        self._task: asyncio.Task[None] | None = None

    def add(self, credential: Credential, on_rejected: OnRejected) -> int:
        number = next(self._numbers)
        self._callbacks.setdefault(credential, {})[number] = on_rejected
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())
        return number

    def remove(self, credential: Credential, number: int) -> None:
        callbacks = self._callbacks.get(credential, {})
        callbacks.pop(number, None)
        if not callbacks:
            self._callbacks.pop(credential, None)
        if not self._callbacks and self._task is not None:
            self._task.cancel()
            self._task = None

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(REVALIDATION_INTERVAL_SECONDS)
            try:
                rejected = await in_thread(find_rejected, list(self._callbacks))
            except Exception:  # a database failure must not end streams
                log.exception("revalidation of open streams failed")
                continue
            for credential, error in rejected.items():
                for on_rejected in list(self._callbacks.get(credential, {}).values()):
                    on_rejected(error)
                self._callbacks.pop(credential, None)


_revalidators: WeakKeyDictionary[asyncio.AbstractEventLoop, _Revalidator] = WeakKeyDictionary()
