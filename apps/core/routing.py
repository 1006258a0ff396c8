"""Finding the route of a path by its segments, at a cost that does not grow with the routes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from django.urls import URLPattern

_VARIABLE = re.compile(r"<(?:\w+:)?(\w+)>")


class Match(NamedTuple):
    """A route and what the path says for it."""

    route: URLPattern
    kwargs: dict[str, Any]


class _Node:
    def __init__(self) -> None:
        self.words: dict[str, _Node] = {}
        self.variables: dict[tuple[str, str], tuple[re.Pattern[str], Any, _Node]] = {}
        self.routes: dict[str, URLPattern] = {}
        """By method."""


class Routes:
    """`path()`s whose segments are words or variables, with their `methods` as an extra argument.

    A word goes before a variable, and the route that comes first before a later one.
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
                    raise ValueError(f"a segment of {route.pattern} is neither word nor variable")
                node = node.words.setdefault(segment, _Node())
                continue
            name = variable[1]
            converter = route.pattern.converters[name]
            place = name, converter.regex
            if place not in node.variables:
                node.variables[place] = re.compile(converter.regex), converter, _Node()
            node = node.variables[place][2]
        for method in route.default_args["methods"]:
            node.routes.setdefault(method, route)

    def find(self, path: str, method: str) -> Match | None:
        """The route for a path without its first slash; None when none takes the method there."""
        kwargs: dict[str, Any] = {}
        route = _find(self._root, path.split("/"), 0, method, kwargs)
        return None if route is None else Match(route, kwargs)


def _find(
    node: _Node, segments: list[str], depth: int, method: str, kwargs: dict[str, Any]
) -> URLPattern | None:
    if depth == len(segments):
        return node.routes.get(method)
    segment = segments[depth]
    below = node.words.get(segment)
    if below is not None:
        found = _find(below, segments, depth + 1, method, kwargs)
        if found is not None:
            return found
    for (name, _), (pattern, converter, below) in node.variables.items():
        if pattern.fullmatch(segment) is None:
            continue
        found = _find(below, segments, depth + 1, method, kwargs)
        if found is not None:
            kwargs[name] = converter.to_python(segment)
            return found
    return None
