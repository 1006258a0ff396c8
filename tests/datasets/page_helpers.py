"""Helpers of the tests of dataset pages."""

from __future__ import annotations

import re
from typing import Any

from django.http import HttpResponse

from apps.datasets.models import Dataset, ExampleRevision
from apps.datasets.querysets import ExampleRevisionQuerySet


def path(dataset: Dataset, suffix: str = "") -> str:
    return f"/o/{dataset.workspace_id}/datasets/{dataset.pk}{suffix}"


def text_of(response: HttpResponse) -> str:
    """The text of the page without markup, with single spaces."""
    content = re.sub(r"<(script|style).*?</\1>", "", response.content.decode(), flags=re.DOTALL)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", content))


def current(dataset: Dataset) -> ExampleRevisionQuerySet:
    """The examples of the latest version, last written first."""
    rows = ExampleRevision.objects.for_workspace(dataset.workspace_id).current()
    return rows.filter(dataset=dataset).newest_first()


SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"n": {"type": "integer"}},
    "required": ["n"],
}
