"""The supported providers: names, addresses, secrets, and the parameters that they take."""

from __future__ import annotations

from dataclasses import dataclass, field

from apps.providers.adapters.anthropic import Messages
from apps.providers.adapters.base import Adapter
from apps.providers.adapters.google import Gemini
from apps.providers.adapters.openai import AzureOpenAI, ChatCompletions, OpenAI
from apps.providers.errors import UnknownProvider

_COMMON = ("temperature", "top_p", "max_tokens", "stop", "tool_choice")
_FEATURES = ("tools", "response_schema", "images", "files")
_PENALTIES = ("seed", "frequency_penalty", "presence_penalty")


@dataclass(frozen=True, slots=True)
class Provider:
    """A provider, or a kind of server with a common API."""

    id: str
    name: str
    adapter: Adapter
    key_name: str
    """The workspace secret with the key."""
    base_url_name: str
    """The workspace secret with the address to which the key belongs."""
    default_base_url: str | None
    parameters: tuple[str, ...]
    tracing_name: str
    """The provider's name in runs and prices."""
    needs_key: bool = True
    has_base_url: bool = False
    """Whether a setting may contain an address."""
    model_prefixes: tuple[str, ...] = field(default=())
    """The beginnings of the names of the provider's own models."""


PROVIDERS = {
    provider.id: provider
    for provider in (
        Provider(
            id="openai",
            name="OpenAI",
            adapter=OpenAI(),
            key_name="OPENAI_API_KEY",
            base_url_name="OPENAI_BASE_URL",
            default_base_url="https://api.openai.com/v1",
            parameters=(*_COMMON, *_PENALTIES, "reasoning_effort", *_FEATURES),
            tracing_name="openai",
            model_prefixes=("gpt-", "o1", "o3", "o4", "chatgpt-"),
        ),
        Provider(
            id="anthropic",
            name="Anthropic",
            adapter=Messages(),
            key_name="ANTHROPIC_API_KEY",
            base_url_name="ANTHROPIC_BASE_URL",
            default_base_url="https://api.anthropic.com",
            parameters=(*_COMMON, "thinking_budget", *_FEATURES),
            tracing_name="anthropic",
            model_prefixes=("claude-",),
        ),
        Provider(
            id="google",
            name="Google Gemini",
            adapter=Gemini(),
            key_name="GOOGLE_API_KEY",
            base_url_name="GOOGLE_BASE_URL",
            default_base_url="https://generativelanguage.googleapis.com",
            parameters=(*_COMMON, *_PENALTIES, "thinking_budget", *_FEATURES),
            tracing_name="google_genai",
            model_prefixes=("gemini-",),
        ),
        Provider(
            id="azure_openai",
            name="Azure OpenAI",
            adapter=AzureOpenAI(),
            key_name="AZURE_OPENAI_API_KEY",
            base_url_name="AZURE_OPENAI_ENDPOINT",
            default_base_url=None,
            parameters=(
                *(*_COMMON, *_PENALTIES, "reasoning_effort", *_FEATURES),
                *("base_url", "api_version"),
            ),
            tracing_name="azure",
            has_base_url=True,
        ),
        Provider(
            id="openai_compatible",
            name="OpenAI-compatible server",
            adapter=ChatCompletions(),
            key_name="OPENAI_COMPATIBLE_API_KEY",
            base_url_name="OPENAI_COMPATIBLE_BASE_URL",
            default_base_url=None,
            parameters=(*_COMMON, *_PENALTIES, "reasoning_effort", *_FEATURES, "base_url"),
            tracing_name="openai_compatible",
            needs_key=False,
            has_base_url=True,
        ),
    )
}


def get_provider(provider_id: str) -> Provider:
    """Raises `UnknownProvider`."""
    provider = PROVIDERS.get(provider_id)
    if provider is None:
        raise UnknownProvider
    return provider
