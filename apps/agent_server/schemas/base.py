"""Parsing and validation of JSON bodies and query strings, and their shared models."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self, TypeVar, get_origin
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
from apps.core.json import loads, loads_exact, read_json

JSONObject = dict[str, Any]
SortOrder = Literal["asc", "desc"]
NUL_ESCAPE = b"\\u0000"
_CAPITAL = re.compile("[A-Z]")

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

    verbatim_fields: ClassVar[frozenset[str]] = frozenset()
    """Fields that reach the graph as they were sent, with U+0000."""

    @classmethod
    def parse(cls, raw: bytes) -> Self:
        """Parse and validate; `Invalid` names the first wrong field and lists all."""
        return cls.check(cls.read(raw))

    @classmethod
    def read(cls, raw: bytes) -> Any:
        """Parse the JSON of one body or of a list of bodies."""
        value = read_json(raw)
        if not cls.verbatim_fields or NUL_ESCAPE not in raw:
            return value
        exact = loads_exact(raw)
        if isinstance(value, list) and isinstance(exact, list):
            pairs = zip(value, exact, strict=True)
            return [restore_fields(*pair, cls.verbatim_fields) for pair in pairs]
        return restore_fields(value, exact, cls.verbatim_fields)

    @classmethod
    def check(cls, data: Any) -> Self:
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            raise _to_invalid(error) from None


def restore_fields(value: Any, exact: Any, names: Collection[str]) -> Any:
    """Replace these fields of an object by those of `exact`, the same object with U+0000."""
    if not isinstance(value, dict) or not isinstance(exact, dict):
        return value
    return value | {name: exact[name] for name in names if name in exact}


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


def as_list(value: Any) -> Any:
    """Wrap a single string in a list."""
    return [value] if isinstance(value, str) else value


def to_snake_case(data: Any) -> Any:
    """Convert the names to snake_case: JavaScript clients send some bodies in camelCase."""
    if not isinstance(data, dict):
        return data
    return {
        _CAPITAL.sub(lambda m: f"_{m[0].lower()}", name): value
        for name, value in data.items()
        if value is not None
    }


class Query(BaseModel):
    """The parameters of a query string. Unknown names are ignored, "" counts as absent.

    A list may be given by repeating the name, with commas, or as one JSON array. For other types
    the last value counts.
    """

    model_config = ConfigDict(extra="ignore", frozen=True)
    _is_list_by_name: ClassVar[dict[str, bool]] = {}
    """Whether each parameter is a list."""

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        cls._is_list_by_name = {
            name: get_origin(field.annotation) is list for name, field in cls.model_fields.items()
        }

    @classmethod
    def parse(cls, values: Mapping[str, Sequence[str]]) -> Self:
        """Validate the values of each name; `Invalid` names the first wrong parameter."""
        data: dict[str, Any] = {}
        for name, is_list in cls._is_list_by_name.items():
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
            raise Invalid(
                f"{name}: must be a list: repeated names, commas, or a JSON array"
            ) from None
        elements += [str(element).strip() for element in parsed]
    return [element for element in elements if element]


class CheckpointKey(NamedTuple):
    """A checkpoint that a request refers to, and the field that names it."""

    field: str
    checkpoint_id: UUID
    namespace: str | None
    """None: any namespace."""


class CheckpointReference(Body):
    checkpoint_id: UUID | None = None
    checkpoint_ns: str = ""
    checkpoint_map: dict[str, UUID | None] | None = None
    thread_id: str | None = Field(None, exclude=True)
    """Only checked: the path names the thread."""

    @property
    def keys(self) -> list[CheckpointKey]:
        """The checkpoints that must exist; none without an id."""
        if self.checkpoint_id is None:
            return []
        parents = [
            CheckpointKey(f"checkpoint.checkpoint_map.{namespace}", parent_id, namespace)
            for namespace, parent_id in (self.checkpoint_map or {}).items()
            if parent_id is not None
        ]
        key = CheckpointKey("checkpoint.checkpoint_id", self.checkpoint_id, self.checkpoint_ns)
        return [key, *parents]

    def check_thread(self, thread_id: UUID) -> None:
        """Raise `Invalid` if the reference names a checkpoint of another thread."""
        if self.checkpoint_id is not None and self.thread_id not in {None, str(thread_id)}:
            raise Invalid(f"checkpoint.thread_id: must be {thread_id}, the thread of the request")


def parse_checkpoint_id(field: str, value: Any) -> UUID:
    """Parse the id of a checkpoint in a part of the body that has no schema."""
    try:
        return UUID(str(value))
    except ValueError:
        raise Invalid(f"{field}: must be the UUID of a checkpoint") from None


class Page(Body):
    limit: int = Field(10, ge=1, le=1000)
    offset: int = Field(0, ge=0, le=2**31 - 1)
