"""The declaration of a tool: name, arguments, permissions, and the function.

A tool's name, title and description come from its function, its schema from the model of its
arguments. Unknown arguments are refused, null counts as absent.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, TypeVar, get_type_hints

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    ValidationError,
    WithJsonSchema,
    model_validator,
)

from apps.core.callers import Caller
from apps.core.json import loads
from apps.platform_mcp.api import PlatformApi, ToolError

JSONObject = dict[str, Any]
F = TypeVar("F", bound=Callable[..., JSONObject])


class Arguments(BaseModel):
    """The arguments of a tool."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        return {name: value for name, value in data.items() if value is not None}


def _parse_list(value: Any) -> Any:
    """Accept a JSON array in a string, and a single string, as models write lists."""
    if not isinstance(value, str):
        return value
    if value.lstrip().startswith("["):
        try:
            return loads(value)
        except ValueError:
            raise ValueError("must be a list, or a JSON array in a string") from None
    return [value]


def _parse_object(value: Any) -> Any:
    """Accept a JSON object in a string."""
    if not isinstance(value, str):
        return value
    try:
        return loads(value)
    except ValueError:
        raise ValueError("must be an object, or a JSON object in a string") from None


Flag = Annotated[
    bool,
    WithJsonSchema({"anyOf": [{"type": "boolean"}, {"enum": ["true", "false"], "type": "string"}]}),
]
"""A boolean, also as text."""
Texts = Annotated[
    list[str],
    BeforeValidator(_parse_list),
    WithJsonSchema({"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "string"}]}),
]
"""A list of texts, also as one text, or as a JSON array in a text."""
Object = Annotated[
    JSONObject,
    BeforeValidator(_parse_object),
    WithJsonSchema({"anyOf": [{"type": "object"}, {"type": "string"}]}),
]
"""A JSON object, also as text."""


@dataclass(frozen=True)
class ApiTool:
    """A tool and the function that it calls."""

    function: Callable[..., JSONObject]
    arguments: type[Arguments]
    title: str
    permissions: tuple[str, ...]
    """Required of the caller; the routes that the tool requests check theirs again."""
    is_read_only: bool

    @property
    def name(self) -> str:
        return self.function.__name__

    @cached_property
    def as_json(self) -> JSONObject:
        schema = self.arguments.model_json_schema()
        schema.pop("description", None)
        hints = {"readOnlyHint": self.is_read_only, "openWorldHint": False}
        # Prompts and datasets keep their versions: no tool destroys what it changes.
        changes = {} if self.is_read_only else {"destructiveHint": False, "idempotentHint": False}
        return {
            "name": self.name,
            "title": self.title,
            "description": inspect.getdoc(self.function) or "",
            "inputSchema": {"type": "object", "properties": {}, **schema},
            "annotations": {"title": self.title, **hints, **changes},
        }

    def may_be_called_by(self, caller: Caller) -> bool:
        return all(caller.may(permission) for permission in self.permissions)

    def call(self, api: PlatformApi, arguments: JSONObject) -> JSONObject:
        """Call the tool. Raises `ToolError`."""
        try:
            parsed = self.arguments.model_validate(arguments)
        except ValidationError as error:
            raise ToolError(_describe(error)) from None
        return self.function(api, parsed)


class ToolGroup:
    """The tools of one subject; its method is the decorator that declares them."""

    def __init__(self) -> None:
        self.tools: list[ApiTool] = []

    def declare(self, title: str, *permissions: str, changes: bool = False) -> Callable[[F], F]:
        """Declare the function as a tool; `changes` says that it writes."""

        def add(function: F) -> F:
            model = get_type_hints(function)["arguments"]
            self.tools.append(ApiTool(function, model, title, permissions, not changes))
            return function

        return add


def by_name(groups: Iterable[ToolGroup]) -> Mapping[str, ApiTool]:
    """The tools of all groups, in alphabetical order."""
    tools = sorted((tool for group in groups for tool in group.tools), key=lambda tool: tool.name)
    return {tool.name: tool for tool in tools}


def _describe(error: ValidationError) -> str:
    problems = [
        f"{'.'.join(map(str, problem['loc'])) or 'arguments'}: {problem['msg']}"
        for problem in error.errors(include_url=False, include_input=False)
    ]
    return f"Invalid arguments: {'; '.join(problems[:5])}"
