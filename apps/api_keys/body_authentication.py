"""Authentication of the sender of a large body, by its headers alone."""

from __future__ import annotations

from apps.api_keys import services
from apps.api_keys.authentication import api_key_from_headers
from apps.core import errors
from apps.core.http.asgi import get_session_key, load_user
from apps.core.http.body_memory import MemoryOwner, caller_share
from apps.core.http.body_reader import AsgiScope
from apps.core.sync_bridge import in_thread

_NAMES = {b"x-api-key": "X-Api-Key", b"authorization": "Authorization"}


async def authenticate_sender(scope: AsgiScope) -> MemoryOwner:
    """Return the organization of the key or the user of the session; raises `Unauthenticated`.

    The view authenticates the caller again, with permissions and the workspace.
    """
    headers = {
        _NAMES[name]: value.decode("latin-1") for name, value in scope["headers"] if name in _NAMES
    }
    if secret := api_key_from_headers(headers):
        organization_id = services.cached_organization_id(secret)
        if organization_id is None:
            info = await in_thread(services.get_key_info, secret=secret)
            organization_id = info.organization_id
        return caller_share(organization_id)
    session_key = get_session_key(scope)
    user = await in_thread(load_user, session_key) if session_key else None
    if user is None or not user.is_active:
        raise errors.Unauthenticated
    return caller_share(user.pk)
