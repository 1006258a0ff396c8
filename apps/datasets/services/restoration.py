"""Restores examples that a version removed."""

from __future__ import annotations

from datetime import datetime

from apps.core import errors as core_errors
from apps.datasets.models import Dataset, ExampleRevision
from apps.datasets.services.versions import RevisionContent, write_version

MAX_RESTORED = 10_000


def restore_examples(*, dataset: Dataset, removed_at: datetime) -> int:
    """Add the examples that the version at exactly this time removed, and return their number.

    They have their ids and content again, in a new version. Those that exist again are skipped, so
    that a repeated call has no effect. Raises `Invalid` for more than `MAX_RESTORED`.
    """
    rows = ExampleRevision.objects.for_workspace(dataset.workspace_id)
    with write_version(dataset.workspace_id, dataset.pk) as version:
        removed = list(rows.filter(dataset=dataset, valid_to=removed_at)[: MAX_RESTORED + 1])
        if len(removed) > MAX_RESTORED:
            raise core_errors.Invalid(f"At most {MAX_RESTORED} examples are restored at once.")
        ids = [revision.example_id for revision in removed]
        existing = set(
            rows.current().filter(example_id__in=ids).values_list("example_id", flat=True)
        )
        contents = [
            RevisionContent.from_revision(revision)
            for revision in removed
            if revision.example_id not in existing
        ]
        if contents:
            version.add(contents)
    return len(contents)
