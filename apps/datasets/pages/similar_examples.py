"""Data of the few-shot search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from apps.core.json import dumps_text
from apps.datasets.models import Dataset
from apps.datasets.pages.example_list import preview
from apps.datasets.services.search import find_similar

MAX_MATCHES = 20


@dataclass(frozen=True)
class SimilarRow:
    id: UUID
    inputs: str
    outputs: str | None
    splits: Sequence[str]
    similarity: float


def load_similar(dataset: Dataset, text: str) -> list[SimilarRow]:
    """Load the indexed examples whose inputs are the most similar to the text."""
    return [
        SimilarRow(
            id=match.revision.example_id,
            inputs=preview(dumps_text(match.revision.inputs)),
            outputs=(
                None
                if match.revision.outputs is None
                else preview(dumps_text(match.revision.outputs))
            ),
            splits=match.revision.splits,
            similarity=match.similarity,
        )
        for match in find_similar(dataset=dataset, inputs={"text": text}, limit=MAX_MATCHES)
    ]
