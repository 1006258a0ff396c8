"""Binds the key of a provider to its address: the address does not change without the key.

Secrets are written, never read. A member who may write them would read a key by moving the address
to a server of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from apps.organizations.services.workspaces import secret_values
from apps.providers import errors, transport
from apps.providers.catalogue import PROVIDERS


def check_key_addresses(workspace_id: UUID, values: Mapping[str, str | None]) -> None:
    """Check a change of secrets. Raises `KeyBoundToAddress`."""
    moved = [provider for provider in PROVIDERS.values() if provider.base_url_name in values]
    if not moved:
        return
    names = [name for provider in moved for name in (provider.key_name, provider.base_url_name)]
    stored = secret_values(workspace_id, names)
    for provider in moved:
        if not stored.get(provider.key_name) or provider.key_name in values:
            continue
        before = stored.get(provider.base_url_name) or provider.default_base_url
        after = values[provider.base_url_name] or provider.default_base_url
        # Without an address the key is not sent.
        if after is not None and _origin(before) != _origin(after):
            raise errors.KeyBoundToAddress(provider.key_name, provider.base_url_name)


def _origin(url: str | None) -> tuple[str, int, bool] | str | None:
    if url is None:
        return None
    try:
        return transport.parse_address(url).origin
    except errors.AddressBlocked:
        return url
