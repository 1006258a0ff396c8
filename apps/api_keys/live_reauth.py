"""Lines that stay open: whoever holds one must still be let in, as long as it is open.

What a request proved when it came is asked again, of all open lines of a process at once, in a
number of queries that does not grow with them. So a revoked or expired key, a session that was
signed out, a removed member and a lost permission end a stream within a second, as they refuse a
request.
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
"""Seconds, as long as an answer is kept for requests."""

NOBODY = UUID(int=0)

End = Callable[[errors.AppError], None]


@dataclass(frozen=True, slots=True)
class Credential:
    """By what somebody was let in, where, and for what. Many lines may have the same."""

    workspace_id: UUID
    permission: str
    key: bytes = b""
    """The digest of a key's secret."""
    session: str = ""
    user_id: UUID = NOBODY
    session_hash: str = ""
    """What a new password changes."""


def key_credential(secret: str, workspace_id: UUID, permission: str) -> Credential:
    return Credential(workspace_id, permission, key=digest(secret))


def session_credential(session: str, user: User, workspace_id: UUID, permission: str) -> Credential:
    session_hash = user.get_session_auth_hash()
    return Credential(workspace_id, permission, b"", session, user.pk, session_hash)


@contextlib.contextmanager
def revalidating(proof: Credential | None, end: End) -> Iterator[None]:
    """Have `end` called, on this loop and once, when who came by the proof may stay no longer.

    Without a proof nobody is asked: whom an agent's own code lets in is its own matter.
    """
    if proof is None:
        yield
        return
    loop = asyncio.get_running_loop()
    revalidator = _revalidators.get(loop)
    if revalidator is None:
        revalidator = _revalidators[loop] = _Revalidator()
    number = revalidator.add(proof, end)
    try:
        yield
    finally:
        revalidator.remove(proof, number)


def find_rejected(proofs: Collection[Credential]) -> dict[Credential, errors.AppError]:
    """Which of them would be refused now, and with what."""
    by_key = [proof for proof in proofs if proof.key]
    by_session = [proof for proof in proofs if not proof.key]
    callers: dict[Credential, Caller | errors.AppError] = {}
    if by_key:
        found = callers_for_keys({(proof.key, proof.workspace_id) for proof in by_key})
        dead = errors.Unauthenticated("This API key is not valid any more.")
        callers |= {proof: found.get((proof.key, proof.workspace_id), dead) for proof in by_key}
    if by_session:
        callers |= _of_sessions(by_session)
    refused = {}
    for proof, caller in callers.items():
        if isinstance(caller, errors.AppError):
            refused[proof] = caller
        elif not caller.may(proof.permission):
            refused[proof] = errors.Forbidden(f"Permission {proof.permission} is required.")
    return refused


def _of_sessions(proofs: Collection[Credential]) -> dict[Credential, Caller | errors.AppError]:
    rows = Session.objects.filter(session_key__in={proof.session for proof in proofs})
    open_now = set(rows.filter(expire_date__gt=timezone.now()).values_list("pk", flat=True))
    people = User.objects.filter(is_active=True).in_bulk({proof.user_id for proof in proofs})
    hashes = {pk: person.get_session_auth_hash() for pk, person in people.items()}
    callers = callers_for({(proof.user_id, proof.workspace_id) for proof in proofs})
    over = errors.Unauthenticated("You are signed out.")
    gone = errors.NotFound("No such workspace.")
    return {
        proof: (
            callers.get((proof.user_id, proof.workspace_id), gone)
            if proof.session in open_now and hashes.get(proof.user_id) == proof.session_hash
            else over
        )
        for proof in proofs
    }


class _Revalidator:
    """The open lines of one loop; its task lives as long as there are any."""

    def __init__(self) -> None:
        self._ends: dict[Credential, dict[int, End]] = {}
        self._numbers = itertools.count()
        self._asking: asyncio.Task[None] | None = None

    def add(self, proof: Credential, end: End) -> int:
        number = next(self._numbers)
        self._ends.setdefault(proof, {})[number] = end
        if self._asking is None:
            self._asking = asyncio.get_running_loop().create_task(self._ask())
        return number

    def remove(self, proof: Credential, number: int) -> None:
        ends = self._ends.get(proof)
        if ends is None:
            return
        ends.pop(number, None)
        if not ends:
            del self._ends[proof]
        if not self._ends and self._asking is not None:
            self._asking.cancel()
            self._asking = None

    async def _ask(self) -> None:
        while True:
            await asyncio.sleep(REVALIDATION_INTERVAL_SECONDS)
            try:
                refused = await in_thread(find_rejected, list(self._ends))
            except Exception:  # nobody is sent away because a database did not answer
                log.exception("open streams could not be looked after")
                continue
            for proof, error in refused.items():
                for end in list(self._ends.get(proof, {}).values()):
                    end(error)
                self._ends.pop(proof, None)


_revalidators: WeakKeyDictionary[asyncio.AbstractEventLoop, _Revalidator] = WeakKeyDictionary()
