"""How a JSON body is read and refused, and the pieces that several have."""

from __future__ import annotations

from typing import Any, Literal, Self, TypeVar
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from apps.core.errors import Invalid
from apps.core.json import dumps, loads, storable

JSONObject = dict[str, Any]
SortOrder = Literal["asc", "desc"]
MAX_DEPTH = 200
"""Levels of JSON that a body may have."""
_MAX_SERIALIZED_DEPTH = 254
"""What orjson writes, and rows and answers wrap what bodies hold."""

B = TypeVar("B", bound="Body")


class Body(BaseModel):
    """A JSON object; `parse` is the way in."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, data: Any) -> Any:
        if isinstance(data, dict):
            return {name: value for name, value in data.items() if value is not None}
        return data

    @classmethod
    def parse(cls, raw: bytes) -> Self:
        """The checked body; `Invalid` says in one sentence what is wrong with it."""
        return cls.check(read_json(raw))

    @classmethod
    def check(cls, data: Any) -> Self:
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            raise _to_invalid(error) from None


def read_json(raw: bytes) -> Any:
    """The value, fit to be stored: without U+0000, and not nested deeper than can be written."""
    try:
        value = loads(storable(raw))
    except ValueError:
        raise Invalid("Invalid JSON in request body") from None
    if raw.count(b"[") + raw.count(b"{") > MAX_DEPTH and not _is_serializable(value):
        raise Invalid(f"JSON nested deeper than {MAX_DEPTH} levels in request body")
    return value


def _is_serializable(value: Any) -> bool:
    for _ in range(_MAX_SERIALIZED_DEPTH - MAX_DEPTH):
        value = [value]
    try:
        dumps(value)
    except TypeError:
        return False
    return True


def _to_invalid(error: ValidationError) -> Invalid:
    problems = [
        {"field": ".".join(map(str, problem["loc"])), "message": problem["msg"]}
        for problem in error.errors(include_url=False, include_input=False)
    ]
    first = problems[0]
    where = f"{first['field']}: " if first["field"] else ""
    return Invalid(f"{where}{first['message']}", problems)


class CheckpointReference(Body):
    checkpoint_id: UUID | None = None
    checkpoint_ns: str = ""
    checkpoint_map: JSONObject | None = None


class Page(Body):
    limit: int = Field(10, ge=1, le=1000)
    offset: int = Field(0, ge=0, le=2**31 - 1)
