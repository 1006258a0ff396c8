"""Tags of versions and splits of examples."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from datetime import datetime
from uuid import UUID

from django.db import transaction

from apps.audit.actions import Action
from apps.audit.services import Target, record
from apps.core import errors as core_errors
from apps.datasets import errors
from apps.datasets.models import (
    TAG_LENGTH,
    Dataset,
    DatasetTag,
    DatasetVersion,
    ExampleRevision,
)
from apps.datasets.services.examples import MetadataOperation, update_metadata
from apps.datasets.services.versions import LATEST, find_tag, lock_dataset, versions_of
from apps.datasets.wire import SPLIT_KEY, parse_splits

MAX_TAGS = 1000


@transaction.atomic
def move_tag(*, dataset: Dataset, name: str, as_of: datetime) -> DatasetVersion:
    """Set the tag on the version of exactly that time, and return it. Safe to repeat.

    Raises `VersionNotFound`, and `Invalid` for `latest`, which moves by itself.
    """
    if not name or len(name) > TAG_LENGTH or "\x00" in name or name == LATEST:
        raise core_errors.Invalid(
            f"`tag` must have 1 to {TAG_LENGTH} characters and not be `{LATEST}`."
        )
    dataset = lock_dataset(dataset.workspace_id, dataset.pk)
    version: DatasetVersion | None = versions_of(dataset).filter(as_of=as_of).first()
    if version is None:
        raise errors.VersionNotFound("`as_of` is not the exact time of a version.")
    tags = DatasetTag.objects.for_workspace(dataset.workspace_id).filter(dataset=dataset)
    tag = tags.filter(name=name).first()
    before = None if tag is None else tag.as_of
    if before == as_of:
        return version
    if tag is None:
        if tags.count() >= MAX_TAGS:
            raise core_errors.Invalid(f"A dataset has at most {MAX_TAGS} tags.")
        tag = DatasetTag(workspace_id=dataset.workspace_id, dataset=dataset, name=name)
    tag.as_of = as_of
    tag.save()
    record(
        Action.DATASET_TAGGED,
        Target("dataset", dataset.pk, dataset.name),
        before={"tag": name, "as_of": before},
        after={"tag": name, "as_of": as_of},
        workspace_id=dataset.workspace_id,
    )
    return version


@transaction.atomic
def remove_tag(*, dataset: Dataset, name: str) -> None:
    """Remove the tag; its version stays. Raises `VersionNotFound`.

    A few-shot index that follows the tag stays at its version.
    """
    dataset = lock_dataset(dataset.workspace_id, dataset.pk)
    tag = find_tag(dataset, name)
    tag.delete()
    record(
        Action.DATASET_TAGGED,
        Target("dataset", dataset.pk, dataset.name),
        before={"tag": name, "as_of": tag.as_of},
        after={"tag": name, "as_of": None},
        workspace_id=dataset.workspace_id,
    )


def list_tags(dataset: Dataset) -> list[DatasetTag]:
    """Return the tags of the dataset by name."""
    tags = DatasetTag.objects.for_workspace(dataset.workspace_id)
    return list(tags.filter(dataset=dataset).order_by("name"))


def tags_of_versions(
    dataset: Dataset, versions: Sequence[DatasetVersion]
) -> dict[datetime, list[str]]:
    """Return the names of each version's tags, sorted; the newest version has `latest` first."""
    names: dict[datetime, list[str]] = defaultdict(list)
    names[dataset.latest_version_at].append(LATEST)
    rows = DatasetTag.objects.for_workspace(dataset.workspace_id).filter(
        dataset=dataset, as_of__in=[version.as_of for version in versions]
    )
    for name, as_of in rows.order_by("name").values_list("name", "as_of"):
        names[as_of].append(name)
    return names


def list_splits(dataset: Dataset, version_at: datetime | None) -> list[str]:
    """Return the names of the splits in the version, sorted; read from the index alone."""
    rows = ExampleRevision.objects.for_workspace(dataset.workspace_id).as_of(version_at)
    lists = rows.filter(dataset=dataset).order_by().values_list("splits", flat=True).distinct()
    return sorted({name for names in lists for name in names})


def change_split(
    *, dataset: Dataset, name: str, example_ids: Collection[UUID], remove: bool
) -> None:
    """Add the examples to the split, or remove them from it, in one version: all or none.

    Raises `ExampleNotFound`. An example without a split returns to `base`.
    """
    parse_splits(name)
    kind = "ARRAY_REMOVE" if remove else "ARRAY_ADD"
    _update_splits(dataset, example_ids, MetadataOperation(SPLIT_KEY, kind, values=[name]))


def move_to_split(*, dataset: Dataset, name: str, example_ids: Collection[UUID]) -> None:
    """Set the split as the only one of the examples, in one version: all or none.

    Raises `ExampleNotFound`.
    """
    operation = MetadataOperation(SPLIT_KEY, "SET", value=parse_splits(name))
    _update_splits(dataset, example_ids, operation)


def _update_splits(
    dataset: Dataset, example_ids: Collection[UUID], operation: MetadataOperation
) -> None:
    ids = list(dict.fromkeys(example_ids))
    with transaction.atomic():
        changed = update_metadata(dataset=dataset, example_ids=ids, operations=[operation])
        missing = [example_id for example_id in ids if example_id not in changed]
        if missing:
            raise errors.ExampleNotFound(f"The dataset has no example {missing[0]}.")
