"""Addresses of resources with `{name}` for a part of the path: RFC 6570, level 1."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import unquote

from apps.core.linear_regex import compile_pattern

MAX_LENGTH = 500
RESERVED_SCHEMES = frozenset({"thread", "attachment"})
"""Of the platform's own resources."""
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):[^\s{}]")
_VARIABLE = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")


@dataclass(frozen=True, slots=True)
class UriTemplate:
    """An address; without variables it is that of one resource."""

    text: str
    variables: tuple[str, ...]
    pattern: str

    def match(self, uri: str) -> dict[str, str] | None:
        """The values of the variables in the address; None if it is not one of the template."""
        match = compile_pattern(self.pattern).fullmatch(uri)
        if match is None:
            return None
        values = [unquote(value) for value in match.groups()]
        return dict(zip(self.variables, values, strict=True))


@lru_cache(maxsize=1024)
def parse(text: str) -> UriTemplate:
    """Raises `ValueError`, which says what an address must be."""
    scheme = _SCHEME.match(text)
    if scheme is None or len(text) > MAX_LENGTH:
        raise ValueError(
            f"must be an address such as docs://pages, of at most {MAX_LENGTH} letters"
        )
    if scheme[1].lower() in RESERVED_SCHEMES:
        raise ValueError(f"{scheme[1]}: is a scheme of the platform")
    variables = tuple(_VARIABLE.findall(text))
    literals = _VARIABLE.split(text)[::2]
    if any("{" in literal or "}" in literal or " " in literal for literal in literals):
        raise ValueError("may have variables such as {name}, and no other braces")
    if len(set(variables)) < len(variables) or "" in literals[1:-1]:
        raise ValueError("must name each variable once, with a text between two of them")
    pattern = r"([^/?#]+)".join(map(re.escape, literals))
    compile_pattern(pattern)
    return UriTemplate(text, variables, pattern)
