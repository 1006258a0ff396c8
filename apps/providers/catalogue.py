"""The supported providers: names, addresses, secrets, and the parameters that they take."""

from __future__ import annotations

from dataclasses import dataclass

from apps.providers.adapters.anthropic import Messages
from apps.providers.adapters.base import Adapter
from apps.providers.adapters.google import Gemini
from apps.providers.adapters.openai import AzureOpenAI, ChatCompletions, OpenAI
from apps.providers.errors import UnknownProvider

_COMMON = ("temperature", "top_p", "max_tokens", "stop", "tool_choice")
_FEATURES = ("tools", "response_schema", "images", "files")
_SAMPLING = ("seed", "frequency_penalty", "presence_penalty")
_OPENAI = (*_SAMPLING, "reasoning_effort")


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """A provider, or a kind of server with a common API."""

    id: str
    name: str
    adapter: Adapter
    key_prefix: str
    """The beginning of the names of the workspace secrets."""
    address_suffix: str = "BASE_URL"
    default_base_url: str | None = None
    own_parameters: tuple[str, ...]
    """The parameters besides those that all providers take."""
    needs_key: bool = True
    model_prefixes: tuple[str, ...] = ()
    """The beginnings of the names of the provider's own models."""
    own_tracing_name: str = ""

    @property
    def key_name(self) -> str:
        """The workspace secret with the key."""
        return f"{self.key_prefix}_API_KEY"

    @property
    def base_url_name(self) -> str:
        """The workspace secret with the address to which the key belongs."""
        return f"{self.key_prefix}_{self.address_suffix}"

    @property
    def parameters(self) -> tuple[str, ...]:
        return (*_COMMON, *self.own_parameters, *_FEATURES)

    @property
    def has_base_url(self) -> bool:
        """Whether a setting may contain an address."""
        return "base_url" in self.own_parameters

    @property
    def tracing_name(self) -> str:
        """The provider's name in runs and prices."""
        return self.own_tracing_name or self.id


PROVIDERS = {
    provider.id: provider
    for provider in (
        Provider(
            id="openai",
            name="OpenAI",
            adapter=OpenAI(),
            key_prefix="OPENAI",
            default_base_url="https://api.openai.com/v1",
            own_parameters=_OPENAI,
            model_prefixes=("gpt-", "o1", "o3", "o4", "chatgpt-"),
        ),
        Provider(
            id="anthropic",
            name="Anthropic",
            adapter=Messages(),
            key_prefix="ANTHROPIC",
            default_base_url="https://api.anthropic.com",
            own_parameters=("thinking_budget",),
            model_prefixes=("claude-",),
        ),
        Provider(
            id="google",
            name="Google Gemini",
            adapter=Gemini(),
            key_prefix="GOOGLE",
            default_base_url="https://generativelanguage.googleapis.com",
            own_parameters=(*_SAMPLING, "thinking_budget"),
            model_prefixes=("gemini-",),
            own_tracing_name="google_genai",
        ),
        Provider(
            id="azure_openai",
            name="Azure OpenAI",
            adapter=AzureOpenAI(),
            key_prefix="AZURE_OPENAI",
            address_suffix="ENDPOINT",
            own_parameters=(*_OPENAI, "base_url", "api_version"),
            own_tracing_name="azure",
        ),
        Provider(
            id="openai_compatible",
            name="OpenAI-compatible server",
            adapter=ChatCompletions(),
            key_prefix="OPENAI_COMPATIBLE",
            own_parameters=(*_OPENAI, "base_url"),
            needs_key=False,
        ),
    )
}


def get_provider(provider_id: str) -> Provider:
    """Raises `UnknownProvider`."""
    provider = PROVIDERS.get(provider_id)
    if provider is None:
        raise UnknownProvider
    return provider
