"""A segment trie that finds the route of a path at a cost independent of the route count."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from django.urls import URLPattern

_VARIABLE = re.compile(r"<(?:\w+:)?(\w+)>")


class Match(NamedTuple):
    """A route and the parameters from the path."""

    route: URLPattern
    kwargs: dict[str, Any]


class _Node:
    def __init__(self) -> None:
        self.literals: dict[str, _Node] = {}
        self.variables: dict[tuple[str, str], tuple[re.Pattern[str], Any, _Node]] = {}
        self.routes: dict[str, URLPattern] = {}
        """By method."""


class Routes:
    """`path()`s whose segments are literals or variables, with a `methods` argument.

    A literal segment wins over a variable, an earlier route over a later one.
    """

    def __init__(self, routes: Sequence[URLPattern]) -> None:
        self._root = _Node()
        for route in routes:
            self._add(route)

    def _add(self, route: URLPattern) -> None:
        node = self._root
        for segment in str(route.pattern).split("/"):
            variable = _VARIABLE.fullmatch(segment)
            if variable is None:
                if "<" in segment:
                    raise ValueError(f"{route.pattern}: mixed segment {segment!r}")
                node = node.literals.setdefault(segment, _Node())
                continue
            name = variable[1]
            converter = route.pattern.converters[name]
            key = name, converter.regex
            if key not in node.variables:
                node.variables[key] = re.compile(converter.regex), converter, _Node()
            node = node.variables[key][2]
        for method in route.default_args["methods"]:
            node.routes.setdefault(method, route)

    def find(self, path: str, method: str) -> Match | None:
        """Return the route of a path (without leading slash) for the method, or None."""
        kwargs: dict[str, Any] = {}
        route = _find(self._root, path.split("/"), 0, method, kwargs)
        return None if route is None else Match(route, kwargs)


def _find(
    node: _Node, segments: list[str], depth: int, method: str, kwargs: dict[str, Any]
) -> URLPattern | None:
    if depth == len(segments):
        return node.routes.get(method)
    segment = segments[depth]
    child = node.literals.get(segment)
    if child is not None:
        route = _find(child, segments, depth + 1, method, kwargs)
        if route is not None:
            return route
    for (name, _), (pattern, converter, child) in node.variables.items():
        if pattern.fullmatch(segment) is None:
            continue
        route = _find(child, segments, depth + 1, method, kwargs)
        if route is not None:
            kwargs[name] = converter.to_python(segment)
            return route
    return None
