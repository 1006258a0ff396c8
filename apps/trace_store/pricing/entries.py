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
import re2  # type: ignore[import-untyped]

from apps.tracing.models import ModelPrice

MATCH_PATHS = ("model", "model_name", "model_id", "model_path", "endpoint_name")
_BUILT_IN_NAMESPACE = UUID("6ec2d5a4-5b2f-8c1d-9f8e-3a2b7c4d5e6f")
_MAX_PATTERN_MEMORY = 1 << 20
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

    def fits(self, names: Mapping[str, str]) -> bool:
        """Whether a name under one of the match paths of this entry matches."""
        return any(
            self.pattern.search(name[:_MAX_NAME_LENGTH])
            for path in self.match_path
            if (name := names.get(path)) is not None
        )


_MAX_NAME_LENGTH = 500


def compile_pattern(pattern: str) -> Any:
    """Compile the pattern. Raises `ValueError` with the reason if it is invalid.

    RE2 matches in linear time: tenants write the patterns and every ingest request runs them.
    """
    options = re2.Options()
    options.max_mem = _MAX_PATTERN_MEMORY
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0] if error.args else "not a regular expression"
        raise ValueError(reason.decode() if isinstance(reason, bytes) else str(reason)) from None


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
    return tuple(_entry(entry) for entry in document.entries)


def _entry(written: _EntryDocument) -> PriceEntry:
    start = written.start_time
    identity = "|".join((written.provider or "", written.name, start or "", written.match_pattern))
    return PriceEntry(
        id=uuid5(_BUILT_IN_NAMESPACE, identity),
        name=written.name,
        pattern=compile_pattern(written.match_pattern),
        match_path=MATCH_PATHS,
        provider=written.provider,
        start_time=datetime.fromisoformat(start).replace(tzinfo=UTC) if start else None,
        prompt_cost=Decimal(written.prompt_cost),
        completion_cost=Decimal(written.completion_cost),
        prompt_cost_details=_decimals(written.prompt_cost_details),
        completion_cost_details=_decimals(written.completion_cost_details),
        match_pattern=written.match_pattern,
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
        prompt_cost_details=_decimals(price.prompt_cost_details),
        completion_cost_details=_decimals(price.completion_cost_details),
        match_pattern=price.match_pattern,
        is_built_in=False,
    )


def _decimals(details: Mapping[str, str]) -> dict[str, Decimal]:
    return {name: Decimal(price) for name, price in details.items()}
