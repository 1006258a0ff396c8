"""Which requests an agent's own routes take, and which groups of the server's own are shut.

The paths come from the agent's code, so no regular expression of theirs is tried here: a path is
compared segment by segment, in time that grows with its length alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from apps.deployments.langgraph_json.sections import Http
from apps.deployments.serving_config import CustomRoute

_PARAMETER = re.compile(r"\{[^{}:]*(?::([a-z]+))?\}")
_META = frozenset({"info", "docs", "openapi.json", "metrics"})
_CHECKS: dict[str, Callable[[str], bool]] = {
    "int": str.isdecimal,
    "float": lambda text: text.replace(".", "", 1).isdecimal(),
    "uuid": lambda text: len(text) == 36 and all(c in "0123456789abcdefABCDEF-" for c in text),
}


class Pattern(NamedTuple):
    """A path of the agent's, ready to be compared."""

    segments: tuple[str | Callable[[str], bool], ...]
    takes_rest: bool
    kind: str
    methods: frozenset[str]

    def matches(self, segments: list[str]) -> bool:
        if len(segments) < len(self.segments):
            return False
        if len(segments) > len(self.segments) and not self.takes_rest:
            return False
        return all(
            own == given if isinstance(own, str) else bool(given) and own(given)
            for own, given in zip(self.segments, segments, strict=False)
        )


@lru_cache(maxsize=256)
def patterns(routes: tuple[CustomRoute, ...]) -> tuple[Pattern, ...]:
    """The routes, in their order. One that would take everything takes nothing here: see `rest`."""
    return tuple(pattern for route in routes if (pattern := _pattern(route)).segments)


def takes_rest(routes: tuple[CustomRoute, ...] | None) -> bool:
    """Whether the application also gets what the server itself has no route for."""
    return routes is None or any(not _pattern(route).segments for route in routes)


def match(routes: tuple[CustomRoute, ...] | None, path: str, kind: str, method: str) -> bool | None:
    """Whether a route takes the request; None for a path of theirs with another method."""
    if not routes:
        return False
    segments = _split(path)
    found: bool | None = False
    for pattern in patterns(routes):
        if pattern.kind in (kind, "mount") and pattern.matches(segments):
            if kind != "http" or not pattern.methods or method in pattern.methods:
                return True
            found = None
    return found


def is_disabled(http: Http, path: str) -> bool:
    """Whether the deployment does without the group of routes that this path is of."""
    segments = _split(path)
    first = segments[0] if segments else ""
    if first == "threads":
        of_run = len(segments) > 2 and segments[2] == "runs"
        return http.disable_runs if of_run else http.disable_threads
    if first in _META:
        return http.disable_meta and len(segments) == 1
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
    """The segments; a slash at the end makes no other path, as routers redirect it."""
    return [segment for segment in path.strip("/").split("/") if segment]


def _pattern(route: CustomRoute) -> Pattern:
    segments: list[str | Callable[[str], bool]] = []
    takes_rest = route.kind == "mount"
    for text in _split(route.path):
        kinds = _PARAMETER.findall(text)
        if "path" in kinds:
            takes_rest = True
            break
        whole = _PARAMETER.fullmatch(text)
        if not kinds:
            segments.append(text)
        elif whole is not None:
            segments.append(_CHECKS.get(whole[1] or "str", _match_any))
        else:
            segments.append(_match_any)
    return Pattern(tuple(segments), takes_rest, route.kind, route.methods)


def _match_any(_: str) -> bool:
    return True
