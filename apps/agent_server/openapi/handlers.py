"""What a route takes, read from the code that answers it: its words, its body, its query.

A handler names the model that it parses its body with, and asks for parameters of the query by
name; following the functions that it names finds both, wherever they stand.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import CodeType, FunctionType
from typing import Any

from django.urls import URLPattern

from apps.agent_server.schemas.base import Body

METHODS = ("get", "post", "put", "patch", "delete")
_ADDRESS = re.compile(r"^agents/<slug:slug>")
_PARAMETER = re.compile(r"<(?:\w+:)?(\w+)>")
_INSIDE = "apps.agent_server."
# How handlers ask for a parameter of the query, and what they take it for.
_ASKS = {
    "query_flag": "boolean",
    "number": "integer",
    "query_list": "array",
    "words": "array",
}


@dataclass(frozen=True)
class Handler:
    """One method of one route."""

    method: str
    path: str
    """Below the agent's address: `/threads/{thread_id}`."""
    owner: type
    function: FunctionType
    parameters: tuple[str, ...]
    is_open: bool
    """Answers without a key."""
    bodies: tuple[type[Body], ...] = ()
    query: dict[str, str] = field(default_factory=dict)
    """Names of the query with the type of JSON that they stand for."""

    @property
    def key(self) -> str:
        return f"{self.method.upper()} {self.path}"

    @property
    def words(self) -> tuple[str, str]:
        """Its docstring: the first sentence, and the rest."""
        own = inspect.getdoc(self.function) if self.function.__name__ in METHODS else None
        told = own or self.owner.__doc__ or self.owner.__name__
        told = re.sub(r"^`[^`]*`(, `[^`]*`)*: ", "", inspect.cleandoc(told))
        first, _, rest = told.partition("\n\n")
        first = " ".join(first.split())
        return first[:1].upper() + first[1:], rest


def handlers(views: list[URLPattern], consumers: list[URLPattern]) -> Iterator[Handler]:
    """Every method of every route. A consumer's comes first where both answer it."""
    seen = set[str]()
    for route in (*consumers, *views):
        for handler in _of_consumer(route) if route in consumers else _of_view(route):
            if handler.key not in seen:
                seen.add(handler.key)
                yield handler


def _of_consumer(route: URLPattern) -> Iterator[Handler]:
    owner = inspect.getclosurevars(route.callback).nonlocals["cls"]
    for method in route.default_args["methods"]:
        yield _handler(route, method.lower(), owner, owner.handle, is_open=False)


def _of_view(route: URLPattern) -> Iterator[Handler]:
    owner = getattr(route.callback, "view_class", None)
    if owner is None or not _ADDRESS.match(str(route.pattern)):
        return
    for method in METHODS:
        function = getattr(owner, method, None)
        if function is not None:
            is_open = not getattr(owner, "authentication_classes", ())
            yield _handler(route, method, owner, function, is_open=is_open)


def _handler(
    route: URLPattern, method: str, owner: type, function: Any, *, is_open: bool
) -> Handler:
    address = _ADDRESS.sub("", str(route.pattern))
    reached = list(_reached(function, owner))
    query: dict[str, str] = {}
    bodies: dict[type[Body], None] = {}
    for one in reached:
        query |= _query_of(one)
        bodies |= dict.fromkeys(_bodies_of(one)) if method not in {"get", "delete"} else {}
    return Handler(
        method=method,
        path=_PARAMETER.sub(r"{\1}", address) or "/",
        owner=owner,
        function=function,
        parameters=tuple(_PARAMETER.findall(address)),
        is_open=is_open,
        bodies=tuple(bodies),
        query=query,
    )


def _reached(function: Any, owner: type) -> Iterator[FunctionType]:
    """The function, and those of this app's edge that it names, and so on."""
    waiting, seen = [function], set[Any]()
    while waiting:
        one = inspect.unwrap(waiting.pop())
        if not isinstance(one, FunctionType) or one in seen:
            continue
        seen.add(one)
        yield one
        for name in _names(one.__code__):
            waiting += [
                found
                for found in (one.__globals__.get(name), _own(owner, name))
                if isinstance(found, FunctionType) and _is_edge(found)
            ]


def _own(owner: type, name: str) -> Any:
    """A method of the handler; `get` is not one, but what every mapping has."""
    return None if name in METHODS else getattr(owner, name, None)


def _is_edge(function: FunctionType) -> bool:
    """Whether it belongs to the views and consumers, and not to what they share."""
    module = function.__module__
    inside = module.startswith((f"{_INSIDE}api.", f"{_INSIDE}consumers."))
    return inside and not module.endswith((".base", ".http_request"))


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _bodies_of(function: FunctionType) -> Iterator[type[Body]]:
    for name in _names(function.__code__):
        found: Any = function.__globals__.get(name)
        is_body = isinstance(found, type) and issubclass(found, Body)
        if is_body and not found.__module__.endswith(".schemas.base"):
            yield found


def _query_of(function: FunctionType) -> dict[str, str]:
    found: dict[str, str] = {}
    for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(function)))):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        kind = _ASKS.get(node.func.attr)
        if _is_query(node.func) and node.func.attr in {"get", "getlist"}:
            kind = "string"
        name = node.args[0].value if node.args and isinstance(node.args[0], ast.Constant) else None
        if kind is not None and isinstance(name, str):
            is_known = name in found and kind == "string"
            found[name] = found[name] if is_known else kind
    return found


def _is_query(function: ast.Attribute) -> bool:
    """Whether it is asked of `request.query_params` or `context.query`."""
    holder = function.value
    return isinstance(holder, ast.Attribute) and holder.attr in {"query_params", "query"}
