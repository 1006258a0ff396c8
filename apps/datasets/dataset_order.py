"""Orders of the list of datasets, and the cursors of its pages."""

from __future__ import annotations

import base64
import binascii
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from django.db.models import Count, F, Max, OrderBy, OuterRef, Q, Subquery, Value
from django.db.models.functions import Coalesce

from apps.core.errors import InvalidCursor
from apps.core.json import dumps
from apps.datasets.querysets import DatasetQuerySet
from apps.tracing.models import Project

_SORT_COLUMNS = {"modified_at": "updated_at"}


def sort_datasets(
    workspace_id: UUID, rows: DatasetQuerySet, sort_by: str, *, descending: bool
) -> DatasetQuerySet:
    """Sort the datasets by a column or by their experiments; the value is in `sort_value`."""
    if sort_by in {"session_count", "last_session_start_time"}:
        # A subquery per row; only these two orders need it.
        experiments = Project.objects.for_workspace(workspace_id).present()
        experiments = experiments.filter(reference_dataset_id=OuterRef("pk"))
        grouped = experiments.order_by().values("reference_dataset_id")
        value: Any = Subquery(grouped.annotate(last=Max("start_time")).values("last"))
        if sort_by == "session_count":
            counted = Subquery(grouped.annotate(count=Count("pk")).values("count"))
            value = Coalesce(counted, Value(0))
    else:
        value = F(_SORT_COLUMNS.get(sort_by, sort_by))
    last = "-pk" if descending else "pk"
    return rows.annotate(sort_value=value).order_by(
        _sort_key("sort_value", descending=descending), last
    )


_CURSOR_TYPES: dict[str, Any] = {
    "name": tuple[str, UUID],
    "example_count": tuple[int, UUID],
    "session_count": tuple[int, UUID],
}


def encode_cursor(dataset: Any) -> str:
    return base64.urlsafe_b64encode(dumps([dataset.sort_value, dataset.pk])).decode()


def after_cursor(cursor: str, sort_by: str, *, descending: bool) -> Q:
    """Return the condition of the rows after the cursor's, of which those without value are last.

    Raises `InvalidCursor`.
    """
    try:
        text = base64.b64decode(cursor, altchars=b"-_", validate=True)
        kind = _CURSOR_TYPES.get(sort_by, tuple[datetime | None, UUID])
        value, pk = msgspec.json.decode(text, type=kind)
    except (binascii.Error, ValueError, msgspec.MsgspecError):
        raise InvalidCursor from None
    side = "lt" if descending else "gt"
    if value is None:
        return Q(sort_value=None, **{f"pk__{side}": pk})
    return (
        Q(sort_value=None)
        | Q(**{f"sort_value__{side}": value})
        | Q(sort_value=value, **{f"pk__{side}": pk})
    )


def _sort_key(column: str, *, descending: bool) -> OrderBy:
    """Return the order of a column in which rows without a value come last."""
    expression = F(column)
    return expression.desc(nulls_last=True) if descending else expression.asc(nulls_last=True)
