"""Arrays and objects that conventions spread over attributes with dotted names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def nested(flat: Mapping[str, Any]) -> Any:
    """`{"0.role": "user", "0.calls.1.name": …}` as lists and objects; gaps in numbers close up."""
    tree: dict[str, Any] = {}
    for path, value in flat.items():
        *above, last = path.split(".")
        node = tree
        for name in above:
            inner = node.get(name)
            if not isinstance(inner, dict):
                # A value where others have members: it keeps its place under no name.
                inner = node[name] = {} if inner is None else {"": inner}
            node = inner
        node[last] = {**node[last], "": value} if isinstance(node.get(last), dict) else value
    return _lists(tree)


def _lists(tree: dict[str, Any]) -> Any:
    found = {key: _lists(one) if isinstance(one, dict) else one for key, one in tree.items()}
    if found and all(key.isascii() and key.isdecimal() for key in found):
        return [found[key] for key in sorted(found, key=int)]
    return found
