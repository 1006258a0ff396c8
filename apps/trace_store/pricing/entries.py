"""Entries of the price map: built-in entries and those of workspaces."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache
from importlib import resources
from typing import Any
from uuid import UUID, uuid5

import msgspec

from apps.core.linear_regex import compile_pattern
from apps.trace_store.models import ModelPrice

MATCH_PATHS = ("model", "model_name", "model_id", "model_path", "endpoint_name")
_BUILT_IN_NAMESPACE = UUID("6ec2d5a4-5b2f-8c1d-9f8e-3a2b7c4d5e6f")
MAX_NAME_LENGTH = 500
"""The characters of a name that patterns are matched with."""
_PROVIDER_ALIASES: Mapping[str, str] = {
    "aws": "amazon_bedrock",
    "aws.bedrock": "amazon_bedrock",
    "bedrock": "amazon_bedrock",
    "bedrock_converse": "amazon_bedrock",
    "anthropic_bedrock": "amazon_bedrock",
    "azure_openai": "azure",
    "azure_ai": "azure",
    "together_ai": "together",
    "togetherai": "together",
    "fireworks_ai": "fireworks",
    "groqcloud": "groq",
}


@dataclass(frozen=True, slots=True)
class PriceEntry:
    """Prices per token of the matching models from a start time on."""

    id: UUID
    name: str
    pattern: Any
    match_path: tuple[str, ...]
    provider: str | None
    start_time: datetime | None
    prompt_cost: Decimal
    completion_cost: Decimal
    prompt_cost_details: Mapping[str, Decimal]
    completion_cost_details: Mapping[str, Decimal]
    match_pattern: str
    is_built_in: bool = True

    def matches(self, names: Mapping[str, str]) -> bool:
        """Whether a name under one of the match paths of this entry matches."""
        # One name often stands under all paths.
        texts = {names[path][:MAX_NAME_LENGTH] for path in self.match_path if path in names}
        return any(self.pattern.search(text) for text in texts)


def normalize_provider(provider: str | None) -> str | None:
    """The canonical name of a provider."""
    if not provider:
        return None
    name = provider.strip().lower().replace("-", "_").replace(" ", "_")
    return _PROVIDER_ALIASES.get(name, name)


class _EntryDocument(msgspec.Struct):
    name: str
    match_pattern: str
    prompt_cost: str
    completion_cost: str
    provider: str | None = None
    start_time: str | None = None
    prompt_cost_details: dict[str, str] = {}
    completion_cost_details: dict[str, str] = {}


class _PriceDocument(msgspec.Struct):
    as_of: str
    source: str
    entries: list[_EntryDocument]


@cache
def built_in_entries() -> tuple[PriceEntry, ...]:
    """The built-in entries, the most specific first."""
    text = resources.files(__package__).joinpath("defaults.json").read_bytes()
    document = msgspec.json.decode(text, type=_PriceDocument)
    return tuple(_built_in_entry(entry) for entry in document.entries)


def _built_in_entry(document: _EntryDocument) -> PriceEntry:
    start = document.start_time
    identity = "|".join(
        (document.provider or "", document.name, start or "", document.match_pattern)
    )
    return PriceEntry(
        id=uuid5(_BUILT_IN_NAMESPACE, identity),
        name=document.name,
        pattern=compile_pattern(document.match_pattern),
        match_path=MATCH_PATHS,
        provider=document.provider,
        start_time=datetime.fromisoformat(start).replace(tzinfo=UTC) if start else None,
        prompt_cost=Decimal(document.prompt_cost),
        completion_cost=Decimal(document.completion_cost),
        prompt_cost_details=_to_decimals(document.prompt_cost_details),
        completion_cost_details=_to_decimals(document.completion_cost_details),
        match_pattern=document.match_pattern,
    )


def entry_from_model(price: ModelPrice) -> PriceEntry | None:
    """The entry of a workspace; None if its pattern is not valid."""
    try:
        pattern = compile_pattern(price.match_pattern)
    except ValueError:
        return None
    return PriceEntry(
        id=price.pk,
        name=price.name,
        pattern=pattern,
        match_path=tuple(price.match_path) or MATCH_PATHS,
        provider=normalize_provider(price.provider),
        start_time=price.start_time,
        prompt_cost=price.prompt_cost,
        completion_cost=price.completion_cost,
        prompt_cost_details=_to_decimals(price.prompt_cost_details),
        completion_cost_details=_to_decimals(price.completion_cost_details),
        match_pattern=price.match_pattern,
        is_built_in=False,
    )


def _to_decimals(details: Mapping[str, str]) -> dict[str, Decimal]:
    return {name: Decimal(price) for name, price in details.items()}
