"""The models that a workspace can call, with their prices and the providers' keys."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from django.urls import reverse

from apps.core.callers import Caller
from apps.organizations.permissions import Permission
from apps.providers.catalogue import PROVIDERS, Provider
from apps.providers.client import find_keys
from apps.trace_store.pricing import price_map
from apps.trace_store.pricing.entries import built_in_entries

_NO_CHAT = re.compile(
    r"audio|realtime|live|embed|image|tts|transcribe|instruct|moderation|robotics|computer-use|^ft:"
    r"|vision|search|-codex|-oss"
)
_VERSION = re.compile(r"\d+")


def load_catalogue(caller: Caller) -> dict[str, Any]:
    """Return the providers with their models, and which keys the workspace has."""
    keys = find_keys(caller.workspace_id)
    now = datetime.now(UTC)
    return {
        "providers": [
            {
                "id": provider.id,
                "name": provider.name,
                "secret": provider.key_name,
                "base_url_secret": provider.base_url_name,
                "needs_key": provider.needs_key,
                "has_key": provider.id in keys,
                "has_base_url": provider.has_base_url,
                "needs_base_url": provider.default_base_url is None,
                "accepts_any_model": True,
                "parameters": list(provider.parameters),
                "models": [
                    {"id": name, **_prices(caller, provider, name, now)}
                    for name in list_models(provider)
                ],
            }
            for provider in PROVIDERS.values()
        ],
        "may_run": caller.may(Permission.PROMPTS_WRITE),
        "may_add_keys": caller.may(Permission.SECRETS_WRITE),
        "secrets_url": reverse("settings-secrets", args=[caller.workspace_id]),
    }


def list_models(provider: Provider) -> list[str]:
    """The chat models of a provider that the price map knows, newest versions first."""
    names = {
        entry.name
        for entry in built_in_entries()
        if entry.provider is None
        and entry.name.startswith(provider.model_prefixes)
        and not _NO_CHAT.search(entry.name)
    }
    return sorted(names, key=_newest_first)


def _newest_first(name: str) -> tuple[int, int, str]:
    """Order by major and minor version; longer numbers are dates and sizes."""
    major, minor = [*(int(part) for part in _VERSION.findall(name) if len(part) < 3), 0, 0][:2]
    return -major, -minor, name


def _prices(
    caller: Caller, provider: Provider, name: str, now: datetime
) -> dict[str, float | None]:
    names = {"ls_model_name": name}
    entry = price_map.find_entry(caller.workspace_id, names, provider.tracing_name, now)
    if entry is None:
        return {"input_price": None, "output_price": None}
    return {
        "input_price": _per_million(entry.prompt_cost),
        "output_price": _per_million(entry.completion_cost),
    }


def _per_million(price: Decimal) -> float:
    return float(price * 1_000_000)
