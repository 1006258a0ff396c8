"""Documents of retrievers, and payloads that are a single text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from apps.tracing.messages.values import as_text

MAX_DOCUMENTS = 400


@dataclass(frozen=True, slots=True)
class Document:
    """A document of a retriever: its text and metadata."""

    text: str
    metadata: tuple[tuple[str, str], ...] = ()


def parse_documents(payload: Any) -> list[Document]:
    """Return the documents of a payload; empty if it is not a list of documents."""
    items = payload
    if isinstance(payload, dict):
        items = payload.get("documents", payload.get("output"))
    if not isinstance(items, list) or not items or len(items) > MAX_DOCUMENTS:
        return []
    results = [_parse_document(item) for item in items]
    return [document for document in results if document] if all(results) else []


def _parse_document(item: Any) -> Document | None:
    if not isinstance(item, dict):
        return None
    kwargs = item.get("kwargs")
    fields = kwargs if item.get("lc") and isinstance(kwargs, dict) else item
    text = fields.get("page_content", fields.get("pageContent"))
    if not isinstance(text, str):
        return None
    metadata = fields.get("metadata")
    items = metadata.items() if isinstance(metadata, dict) else ()
    return Document(text, tuple((str(name), as_text(value)) for name, value in items))


def single_text(payload: Any) -> str | None:
    """Return the text of a payload that is, or wraps, a single string."""
    if isinstance(payload, str):
        return payload
    if isinstance(payload, dict) and len(payload) == 1:
        value = next(iter(payload.values()))
        return value if isinstance(value, str) else None
    return None
