from __future__ import annotations

from typing import Any
from uuid import UUID

import msgspec

from apps.core.json import dumps
from apps.datasets.models import Dataset, DatasetShare, DatasetTag
from apps.datasets.services.datasets import create_dataset
from apps.datasets.services.examples import NewExample, create_examples
from apps.datasets.services.search import create_index
from apps.datasets.wire import WireExample
from apps.organizations.models import Workspace


def new_example(inputs: dict[str, Any], **fields: Any) -> NewExample:
    """An example of a request; `outputs` and `metadata` are objects."""
    raw = {
        name: msgspec.Raw(dumps(fields.pop(name)))
        for name in ("outputs", "metadata")
        if name in fields
    }
    return NewExample(WireExample(inputs=msgspec.Raw(dumps(inputs)), **raw, **fields))


def make_dataset(workspace: Workspace, *inputs: dict[str, Any], **fields: Any) -> Dataset:
    """A dataset with one example for each of the inputs, in one version."""
    dataset = create_dataset(workspace_id=workspace.pk, **{"name": "dataset", **fields})
    if inputs:
        create_examples(dataset=dataset, examples=[new_example(item) for item in inputs])
        dataset.refresh_from_db()
    return dataset


def create_dataset_rows(
    workspace: Workspace, mark: str, secret: str, *, dataset_id: UUID, example_id: UUID
) -> dict[str, UUID]:
    """Create a row of each table of datasets; names are `mark`, contents have the secret.

    Returns a value for each route parameter.
    """
    content = {mark: secret}
    dataset = create_dataset(
        workspace_id=workspace.pk,
        id=dataset_id,
        name=mark,
        description=secret,
        extra={"metadata": content},
    )
    example = new_example(content, id=example_id, outputs=content, metadata=content, split=mark)
    written = create_examples(dataset=dataset, examples=[example])
    tag = DatasetTag(workspace=workspace, dataset=dataset, name=mark, as_of=written.as_of)
    tag.save()
    create_index(dataset=dataset, tag=mark)
    share = DatasetShare(workspace=workspace, dataset=dataset)
    share.save()
    return {"dataset_id": dataset.pk, "example_id": example_id, "dataset_share_token": share.token}
