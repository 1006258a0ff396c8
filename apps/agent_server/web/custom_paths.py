"""Matching of an agent's custom routes, and of disabled groups of built-in routes.

Paths of custom routes come from untrusted code, so their regular expressions are not executed: a
path is compared by segment, in time linear in its length.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from apps.deployments.langgraph_json.sections import Http
from apps.deployments.routes import CustomRoute

_PARAMETER = re.compile(r"\{[^{}:]*(?::([a-z]+))?\}")
_META = frozenset({"info", "docs", "openapi.json", "metrics"})
_CHECKS: dict[str, Callable[[str], bool]] = {
    "int": str.isdecimal,
    "float": lambda text: text.replace(".", "", 1).isdecimal(),
    "uuid": lambda text: len(text) == 36 and all(c in "0123456789abcdefABCDEF-" for c in text),
}


class Pattern(NamedTuple):
    """A parsed path of a custom route."""

    segments: tuple[str | Callable[[str], bool], ...]
    has_catch_all: bool
    kind: str
    methods: frozenset[str]

    def matches(self, segments: list[str]) -> bool:
        if len(segments) < len(self.segments):
            return False
        if len(segments) > len(self.segments) and not self.has_catch_all:
            return False
        return all(
            expected == segment
            if isinstance(expected, str)
            else bool(segment) and expected(segment)
            for expected, segment in zip(self.segments, segments, strict=False)
        )


@lru_cache(maxsize=256)
def patterns(routes: tuple[CustomRoute, ...]) -> tuple[Pattern, ...]:
    """The routes in order, without those that match every path (see `has_catch_all`)."""
    return tuple(pattern for route in routes if (pattern := _pattern(route)).segments)


def has_catch_all(routes: tuple[CustomRoute, ...] | None) -> bool:
    """Whether the application also receives requests without a built-in route."""
    return routes is None or any(not _pattern(route).segments for route in routes)


def match(routes: tuple[CustomRoute, ...] | None, path: str, kind: str, method: str) -> bool | None:
    """Whether a route matches; None if only the method differs."""
    if not routes:
        return False
    segments = _split(path)
    result: bool | None = False
    for pattern in patterns(routes):
        if pattern.kind in (kind, "mount") and pattern.matches(segments):
            if kind != "http" or not pattern.methods or method in pattern.methods:
                return True
            result = None
    return result


def is_disabled(http: Http, path: str) -> bool:
    """Whether the deployment disables the path's group of routes."""
    segments = _split(path)
    first = segments[0] if segments else ""
    if first == "threads":
        of_run = len(segments) > 2 and segments[2] == "runs"
        return http.disable_runs if of_run else http.disable_threads
    if first in _META:
        return http.disable_meta and len(segments) == 1
    if segments[:2] == [".well-known", "oauth-protected-resource"]:
        return http.disable_mcp
    return {
        "assistants": http.disable_assistants,
        "runs": http.disable_runs,
        "store": http.disable_store,
        "mcp": http.disable_mcp,
        "a2a": http.disable_a2a,
        ".well-known": http.disable_a2a,
        "ui": http.disable_ui,
    }.get(first, False)


def _split(path: str) -> list[str]:
    """The segments; a trailing slash is ignored."""
    return [segment for segment in path.strip("/").split("/") if segment]


def _pattern(route: CustomRoute) -> Pattern:
    segments: list[str | Callable[[str], bool]] = []
    has_catch_all = route.kind == "mount"
    for text in _split(route.path):
        kinds = _PARAMETER.findall(text)
        if "path" in kinds:
            has_catch_all = True
            break
        parameter = _PARAMETER.fullmatch(text)
        if not kinds:
            segments.append(text)
        elif parameter is not None:
            segments.append(_CHECKS.get(parameter[1] or "str", _match_any))
        else:
            segments.append(_match_any)
    return Pattern(tuple(segments), has_catch_all, route.kind, route.methods)


def _match_any(_: str) -> bool:
    return True
