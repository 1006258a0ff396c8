"""Requests for items of the store."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator

from apps.agent_server.schemas.base import Body, Flag, JSONObject, Query, as_list
from apps.agent_server.store import namespaces

MAX_TTL_MINUTES = 52_560_000.0
"""A hundred years."""
Labels = list[Any]
"""Validated by `namespaces`, whose error texts clients know."""


class ItemReference(Body):
    namespace: Labels = []
    key: str

    def validate_key(self) -> None:
        namespaces.validate_item_key(self.namespace, self.key)


class NewItem(ItemReference):
    value: JSONObject
    index: Literal[False] | list[str] | None = None
    ttl: float | None = Field(None, gt=0, le=MAX_TTL_MINUTES, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _null_deletes_nothing(cls, data: Any) -> Any:
        if isinstance(data, dict) and "value" in data and data["value"] is None:
            raise ValueError("`value` must be an object, not null: delete the item to remove it")
        return data

    @field_validator("index", mode="before")
    @classmethod
    def _true_is_default(cls, value: Any) -> Any:
        return None if value is True else value


class ItemQuery(Query):
    namespace: str = Field("", description="labels joined by dots")
    key: str = ""
    refresh_ttl: Flag | None = None


class ItemSearch(Body):
    namespace_prefix: Annotated[Labels, BeforeValidator(as_list)] = []
    filter: JSONObject = {}
    limit: int = Field(10, ge=1, le=1000)
    offset: int = Field(0, ge=0, le=2**31)
    query: str | None = None
    refresh_ttl: bool | None = None


class NamespaceSearch(Body):
    prefix: Annotated[Labels, BeforeValidator(as_list)] = []
    suffix: Annotated[Labels, BeforeValidator(as_list)] = []
    max_depth: int | None = Field(None, ge=1, le=namespaces.MAX_LABELS)
    limit: int = Field(100, ge=1, le=1000)
    offset: int = Field(0, ge=0, le=2**31)
