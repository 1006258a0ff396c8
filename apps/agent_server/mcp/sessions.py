"""Session ids, which are signed and not stored.

A session tells the calls of one client from those of others with the same key, so that a client can
cancel its own. An id belongs to one caller of one agent and expires; clients cannot end it.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Collection
from typing import NamedTuple

from django.core import signing

from apps.agent_server.auth.access import Admission
from apps.core.errors import NotFound

LIFETIME_SECONDS = 24 * 3600
_SALT = "agent_server.mcp.session"
_LETTERS = {"elicitation": "e", "sampling": "s", "roots": "r"}
"""Of the capabilities of clients in the ids of their sessions."""


class SessionNotFound(NotFound):
    code = "mcp_session_not_found"
    detail = "The MCP session is unknown or has expired. Send `initialize` without a session id."


class Session(NamedTuple):
    """A client among those with the same key."""

    token: str
    capabilities: frozenset[str]
    """What the client answers questions of agents with."""


def create_session_id(admission: Admission, capabilities: Collection[str]) -> str:
    """A new session id of the caller, in visible ASCII."""
    letters = "".join(letter for name, letter in _LETTERS.items() if name in capabilities)
    suffix = f".{letters}" if letters else ""
    value = f"{secrets.token_urlsafe(16)}.{caller_tag(admission)}{suffix}"
    return signing.TimestampSigner(salt=_SALT).sign(value)


def check_session_id(admission: Admission, session_id: str) -> Session:
    """Return the session. Raises `SessionNotFound` for any id that is not the caller's."""
    try:
        value = signing.TimestampSigner(salt=_SALT).unsign(session_id, max_age=LIFETIME_SECONDS)
    except signing.BadSignature:
        raise SessionNotFound from None
    token, _, rest = value.partition(".")
    tag, _, suffix = rest.partition(".")
    if not secrets.compare_digest(tag, caller_tag(admission)):
        raise SessionNotFound
    return Session(token, frozenset(name for name in _LETTERS if _LETTERS[name] in suffix))


def caller_tag(admission: Admission) -> str:
    """A digest of the agent and the caller: a key, a member or a user of the agent's own code."""
    caller, user = admission.caller, admission.user()
    if caller is not None:
        identity = f"{caller.key_id}:{caller.user_id}"
    else:
        identity = "" if user is None else str(user["identity"])
    text = f"{admission.route.deployment_id}:{caller is None}:{identity}"
    return hashlib.sha256(text.encode()).hexdigest()[:32]
