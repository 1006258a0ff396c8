"""Deep pages begin at the version that wrote their first example."""

from __future__ import annotations

import random

import pytest

from apps.datasets.models import DatasetVersion, ExampleRevision
from apps.datasets.services import page_start
from apps.datasets.services.examples import (
    ExampleChange,
    create_examples,
    delete_examples,
    update_examples,
)
from apps.datasets.services.hard_deletion import erase_examples
from apps.datasets.services.page_start import find_page_start
from apps.datasets.wire import WireExampleUpdate
from tests.factories.datasets import make_dataset, new_example

pytestmark = pytest.mark.django_db


@pytest.fixture
def edited(workspace):
    """A dataset with created, changed, deleted and erased examples, and its versions."""
    dataset = make_dataset(workspace, *({"n": number} for number in range(10)), name="edited")
    chooser = random.Random(7)

    def choose(count):
        rows = ExampleRevision.objects.for_workspace(workspace).current().filter(dataset=dataset)
        return chooser.sample(sorted(rows.values_list("example_id", flat=True)), count)

    for number in range(5):
        create_examples(
            dataset=dataset, examples=[new_example({"m": n}) for n in range(number + 2)]
        )
        changes = [
            ExampleChange(WireExampleUpdate(id=example_id, split="changed"))
            for example_id in choose(3)
        ]
        update_examples(dataset=dataset, changes=changes)
        delete_examples(workspace_id=workspace.pk, example_ids=choose(1))
    erase_examples(workspace_id=workspace.pk, example_ids=choose(3))
    dataset.refresh_from_db()
    versions = DatasetVersion.objects.for_workspace(workspace).filter(dataset=dataset)
    return dataset, [None, *versions.values_list("as_of", flat=True)]


@pytest.mark.parametrize("max_versions", [1, 3, 10_000])
def test_each_page_of_each_version_is_that_of_its_offset(edited, monkeypatch, max_versions):
    monkeypatch.setattr(page_start, "MIN_OFFSET", 0)
    monkeypatch.setattr(page_start, "MAX_VERSIONS", max_versions)
    dataset, versions = edited
    for version_at in versions:
        rows = ExampleRevision.objects.for_workspace(dataset.workspace_id).filter(dataset=dataset)
        rows = rows.as_of(version_at).newest_first()
        ids = list(rows.values_list("example_id", flat=True))
        for offset in range(len(ids) + 2):
            start = find_page_start(dataset, version_at, offset)
            assert start is not None
            page = rows.filter(valid_from__lte=start.valid_from)[start.offset : start.offset + 4]
            assert [row.example_id for row in page] == ids[offset : offset + 4]


def test_a_version_counts_the_revisions_that_exist(edited):
    dataset, _ = edited
    rows = ExampleRevision.objects.for_workspace(dataset.workspace_id).filter(dataset=dataset)

    for version in DatasetVersion.objects.for_workspace(dataset.workspace_id).filter(
        dataset=dataset
    ):
        assert version.added_count == rows.filter(valid_from=version.as_of).count()


def test_many_replaced_revisions_and_small_offsets_are_read_by_offset(edited, monkeypatch):
    dataset, _ = edited
    assert find_page_start(dataset, None, 5) is None

    monkeypatch.setattr(page_start, "MIN_OFFSET", 0)
    monkeypatch.setattr(page_start, "MAX_ENDED", 3)

    assert find_page_start(dataset, None, 5) is None


def test_a_deep_page_of_the_api_is_that_of_its_offset(api, edited, monkeypatch):
    dataset, _ = edited
    path = f"/examples?dataset={dataset.pk}"
    ids = [row["id"] for row in api.get(path).json()]

    monkeypatch.setattr(page_start, "MIN_OFFSET", 3)

    for offset in range(len(ids)):
        page = api.get(f"{path}&offset={offset}&limit=2")
        assert [row["id"] for row in page.json()] == ids[offset : offset + 2]
