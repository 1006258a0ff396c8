"""Namespaces: what they may be, and all below one as a range of the index."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from apps.core import errors

RESERVED_ROOT = "langgraph"
MAX_LABELS = 64
MAX_KEY_BYTES = 2000
"""Of namespace and key together, which are one entry of an index."""


class BadNamespace(errors.Invalid):
    code = "bad_namespace"


class NamespaceRefused(errors.BadRequest):
    code = "bad_namespace"


def validate_item_key(namespace: Sequence[Any], key: str) -> None:
    """Refuse what cannot be the place of an item."""
    if not namespace:
        raise NamespaceRefused("Namespace cannot be empty.")
    validate_labels(namespace)
    if namespace[0] == RESERVED_ROOT:
        raise NamespaceRefused(
            f'Root label for namespace cannot be "{RESERVED_ROOT}". Got: {list(namespace)}'
        )
    if not key or "\0" in key:
        raise BadNamespace("key: must be a text of at least one character, without NUL")
    if sum(len(text.encode()) for text in (*namespace, key)) > MAX_KEY_BYTES:
        raise BadNamespace(f"namespace and key: together longer than {MAX_KEY_BYTES} bytes")


def validate_labels(namespace: Sequence[Any]) -> None:
    """Refuse what cannot be a namespace or the beginning of one."""
    if not isinstance(namespace, list | tuple):
        raise BadNamespace("namespace: must be a list of labels")
    if len(namespace) > MAX_LABELS:
        raise BadNamespace(f"namespace: more than {MAX_LABELS} labels")
    for label in namespace:
        if not isinstance(label, str):
            raise BadNamespace(f"Invalid namespace label '{label}': labels must be texts.")
        if not label or "\0" in label:
            raise BadNamespace("Namespace labels cannot be empty.")
        if "." in label:
            raise BadNamespace(
                f"Invalid namespace label '{label}'. Namespace labels cannot contain periods ('.')."
            )


def prefix_upper_bound(prefix: Sequence[str]) -> list[str]:
    """What comes right after all namespaces that begin with the prefix, compared byte by byte."""
    *before, last = prefix
    return [*before, f"{last}\x01"]
