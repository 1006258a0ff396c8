"""Parsing and validation of JSON bodies and query strings, and shared parts of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar, get_origin
from uuid import UUID

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from apps.core.errors import Invalid
from apps.core.json import dumps, loads, storable

JSONObject = dict[str, Any]
SortOrder = Literal["asc", "desc"]
MAX_DEPTH = 200
"""Nesting levels of a JSON body."""
_MAX_SERIALIZED_DEPTH = 254
"""The limit of orjson; rows and responses add levels around those of a body."""

B = TypeVar("B", bound="Body")


class Body(BaseModel):
    """A JSON object of a request. Unknown fields are ignored, null counts as absent."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, data: Any) -> Any:
        if isinstance(data, dict):
            return {name: value for name, value in data.items() if value is not None}
        return data

    @classmethod
    def parse(cls, raw: bytes) -> Self:
        """Parse and validate; `Invalid` names the first wrong field and lists all."""
        return cls.check(read_json(raw))

    @classmethod
    def check(cls, data: Any) -> Self:
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            raise _to_invalid(error) from None


def read_json(raw: bytes) -> Any:
    """Parse JSON that can be stored: without U+0000, and not nested too deep to be serialized."""
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


def parse_flag(value: Any) -> bool:
    """Parse a boolean of a query: Python clients send `true`, JavaScript clients `1`."""
    return str(value).lower() in {"true", "1"}


Flag = Annotated[bool, BeforeValidator(parse_flag)]


class Query(BaseModel):
    """The parameters of a query string. Unknown names are ignored, "" counts as absent.

    A list is the name repeated, values between commas, or one JSON array; of other types the last
    value counts.
    """

    model_config = ConfigDict(extra="ignore", frozen=True)
    _are_lists: ClassVar[dict[str, bool]] = {}
    """Whether each parameter is a list."""

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        cls._are_lists = {
            name: get_origin(field.annotation) is list for name, field in cls.model_fields.items()
        }

    @classmethod
    def parse(cls, values: Mapping[str, Sequence[str]]) -> Self:
        """Validate the values of each name; `Invalid` names the first wrong parameter."""
        data: dict[str, Any] = {}
        for name, is_list in cls._are_lists.items():
            if name not in values:
                continue
            if is_list:
                data[name] = _parse_list(name, values[name])
            elif values[name][-1]:
                data[name] = values[name][-1]
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            raise _to_invalid(error) from None


def _parse_list(name: str, values: Sequence[str]) -> list[str]:
    elements: list[str] = []
    for value in values:
        try:
            parsed = loads(value) if value.startswith("[") else value.split(",")
        except ValueError:
            raise Invalid(f"{name}: not a list") from None
        elements += [str(element).strip() for element in parsed]
    return [element for element in elements if element]


class CheckpointReference(Body):
    checkpoint_id: UUID | None = None
    checkpoint_ns: str = ""
    checkpoint_map: JSONObject | None = None


class Page(Body):
    limit: int = Field(10, ge=1, le=1000)
    offset: int = Field(0, ge=0, le=2**31 - 1)
