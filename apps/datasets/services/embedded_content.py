"""Content of examples as it is stored, for a response; of large examples only the first are loaded.

A page of a hundred examples of 25 MB each is encoded while it is sent, see `iterate_encoded`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db.models import TextField
from django.db.models.expressions import RawSQL

from apps.core.connections import raw_cursor, sql
from apps.core.json import Fragment, LazyFragment
from apps.datasets.models import ExampleRevision
from apps.datasets.querysets import ExampleRevisionQuerySet

MAX_LOADED_BYTES = 8_388_608
"""Stored, which means compressed, bytes of a page that are loaded at once."""
FIELDS = ("inputs", "outputs")
_TABLE = ExampleRevision._meta.db_table
_SIZE = f"pg_column_size({_TABLE}.inputs) + coalesce(pg_column_size({_TABLE}.outputs), 0)"


def with_embedded_content(rows: ExampleRevisionQuerySet) -> ExampleRevisionQuerySet:
    """Return the rows with the text of their content instead of its value."""
    texts = {
        f"embedded_{field}": RawSQL(  # noqa: S611 -- constants
            f"CASE WHEN sum({_SIZE}) OVER (ORDER BY {_TABLE}.id) <= %s"
            f" THEN {_TABLE}.{field}::text WHEN {_TABLE}.{field} IS NOT NULL THEN '' END",
            [MAX_LOADED_BYTES],
            output_field=TextField(),
        )
        for field in FIELDS
    }
    return rows.defer(*FIELDS).annotate(**texts)


def embedded_content(revision: ExampleRevision, field: str) -> Any:
    """Return the JSON of the field, to be encoded; its value if the text was not selected."""
    if not hasattr(revision, f"embedded_{field}"):
        return getattr(revision, field)
    text = getattr(revision, f"embedded_{field}")
    if text is None:
        return None
    return Fragment(text.encode()) if text else _StoredContent(revision.pk, field)


@dataclass(frozen=True, slots=True)
class _StoredContent(LazyFragment):
    """The content of a field, which is read when it is encoded."""

    revision_id: UUID
    field: str

    def load(self) -> bytes:
        statement = f"SELECT {self.field}::text FROM {_TABLE} WHERE id = %s"  # noqa: S608 -- a name
        with raw_cursor() as cursor:
            cursor.execute(sql(statement), [self.revision_id])
            row = cursor.fetchone()
        return b"null" if row is None else row[0].encode()
