"""Chainable queries on datasets, versions and examples."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import TYPE_CHECKING, Any

from django.db import models
from django.db.models import BooleanField, Q
from django.db.models.expressions import RawSQL

from apps.core.json import dumps_text
from apps.core.verbatim_json import searchable

if TYPE_CHECKING:
    from apps.datasets.models import (  # noqa: F401
        Dataset,
        DatasetShare,
        DatasetTag,
        DatasetVersion,
        ExampleIndex,
        ExampleRevision,
        IndexedExample,
    )


class DatasetQuerySet(models.QuerySet["Dataset"]):
    def present(self) -> DatasetQuerySet:
        """Datasets that are not deleted."""
        return self.filter(deleted_at=None)

    def deleted(self) -> DatasetQuerySet:
        """Deleted datasets, which can be restored."""
        return self.filter(deleted_at__isnull=False)


class DatasetVersionQuerySet(models.QuerySet["DatasetVersion"]):
    def newest_first(self) -> DatasetVersionQuerySet:
        return self.order_by("-as_of")


class DatasetTagQuerySet(models.QuerySet["DatasetTag"]):
    pass


class DatasetShareQuerySet(models.QuerySet["DatasetShare"]):
    pass


class ExampleIndexQuerySet(models.QuerySet["ExampleIndex"]):
    pass


class IndexedExampleQuerySet(models.QuerySet["IndexedExample"]):
    pass


class ExampleRevisionQuerySet(models.QuerySet["ExampleRevision"]):
    def current(self) -> ExampleRevisionQuerySet:
        """The revisions of the latest version."""
        return self.filter(valid_to=None)

    def as_of(self, version_at: datetime | None) -> ExampleRevisionQuerySet:
        """The revisions that are valid at the time, inclusive; None is the latest version."""
        if version_at is None:
            return self.current()
        return self.filter(
            Q(valid_to=None) | Q(valid_to__gt=version_at), valid_from__lte=version_at
        )

    def in_splits(self, names: Collection[str]) -> ExampleRevisionQuerySet:
        """Examples in at least one of the splits."""
        return self.filter(splits__overlap=list(names))

    def with_metadata(self, metadata: dict[str, Any]) -> ExampleRevisionQuerySet:
        """Examples whose metadata contains the object."""
        return self.filter(metadata__contains=metadata)

    def containing_text(self, text: str) -> ExampleRevisionQuerySet:
        """Examples with the text in inputs or outputs, in any case, as their JSON has it."""
        pattern = dumps_text(text)[1:-1]
        for character in "\\%_":
            pattern = pattern.replace(character, f"\\{character}")
        columns = [f"{searchable(f'datasets_examplerevision.{name}')}::text" for name in _TEXTS]
        condition = " OR ".join(f"{column} ILIKE %s" for column in columns)
        values = [f"%{pattern}%"] * len(columns)
        field = BooleanField()
        return self.filter(RawSQL(f"({condition})", values, output_field=field))  # noqa: S611  (constants)

    def newest_first(self) -> ExampleRevisionQuerySet:
        """The last written first; examples of one version in the order of its request."""
        return self.order_by("-valid_from", "position", "example_id")


_TEXTS = ("inputs", "outputs")
