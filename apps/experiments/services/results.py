"""Results of experiments: the examples of a dataset with the runs of several experiments."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from apps.core import errors as core_errors
from apps.core.timestamps import parse_timestamp
from apps.datasets.errors import ExperimentNotFound
from apps.datasets.models import Dataset, ExampleRevision
from apps.datasets.services.embedded_content import with_embedded_content
from apps.feedback.services import example_scores
from apps.trace_store import (
    ExampleRuns,
    Payload,
    RunDetail,
    RunQuery,
    filters,
    run_store,
)
from apps.tracing.models import Project

MAX_EXPERIMENTS = 100


def get_experiments(dataset: Dataset, experiment_ids: Sequence[UUID]) -> list[Project]:
    """Return the experiments on the dataset in this order; raises `ExperimentNotFound`."""
    projects = Project.objects.for_workspace(dataset.workspace_id).present()
    rows = projects.filter(pk__in=experiment_ids, reference_dataset_id=dataset.pk)
    by_id = {project.pk: project for project in rows}
    missing = [str(item) for item in experiment_ids if item not in by_id]
    if missing:
        raise ExperimentNotFound(f"The dataset has no experiment {missing[0]}.")
    return [by_id[item] for item in dict.fromkeys(experiment_ids)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultQuery:
    """A selection of examples by the runs of experiments on the dataset."""

    dataset: Dataset
    experiments: Sequence[Project]
    filters: Mapping[UUID, Sequence[str]] = field(default_factory=dict)
    """Filter expressions by experiment: it must have a run of the example that meets them all."""
    example_ids: Collection[UUID] | None = None
    comparison_id: UUID | None = None
    """The comparison whose scores count, too."""
    sort_key: str | None = None
    """The feedback key whose average in the first experiment orders the examples."""
    descending: bool = True

    @property
    def workspace_id(self) -> UUID:
        return self.dataset.workspace_id

    @property
    def experiment_ids(self) -> list[UUID]:
        return [project.pk for project in self.experiments]

    def matching(self) -> list[RunQuery]:
        """Return a query of runs for each filtered experiment; raises `FilterError`."""
        unknown = self.filters.keys() - set(self.experiment_ids)
        if unknown:
            raise core_errors.Invalid(
                f"`filters`: {min(map(str, unknown))} is not one of the experiments."
            )
        return [
            RunQuery(
                project_ids=[project_id],
                is_root=True,
                where=filters.all_of([filters.parse(text) for text in texts]),
            )
            for project_id, texts in self.filters.items()
            if texts
        ]


@dataclass(frozen=True, slots=True)
class ResultRow:
    """An example, the times of its runs, and its runs in the experiments, oldest first."""

    example_id: UUID
    first_time: datetime
    revision: ExampleRevision | None
    """None if the example was erased, or is one of another dataset."""
    runs: list[RunDetail]


def find_examples(
    query: ResultQuery,
    *,
    offset: int = 0,
    limit: int | None = None,
    after: tuple[datetime, UUID] | None = None,
) -> Sequence[ExampleRuns]:
    """Return a page of the examples that the experiments ran on, in the order of the first run.

    With a sort key, examples with a score precede those without, and `after` has no effect.
    """
    matching = query.matching()
    if query.sort_key is None:
        return run_store.find_examples(
            query.workspace_id,
            query.experiment_ids,
            matching=matching,
            example_ids=query.example_ids,
            after=after,
            offset=offset,
            limit=limit,
        )
    examples = run_store.find_examples(
        query.workspace_id, query.experiment_ids, matching=matching, example_ids=query.example_ids
    )
    scores = example_scores.average_by_example(
        query.workspace_id,
        query.experiment_ids[:1],
        query.sort_key,
        comparison_id=query.comparison_id,
    ).get(query.experiment_ids[0], {})
    scored = [item for item in examples if item.example_id in scores]
    scored.sort(key=lambda item: scores[item.example_id], reverse=query.descending)
    ordered = [*scored, *(item for item in examples if item.example_id not in scores)]
    return ordered[offset : None if limit is None else offset + limit]


def load_rows(
    query: ResultQuery,
    examples: Sequence[ExampleRuns],
    payloads: Collection[Payload],
    *,
    is_embedded: bool = False,
) -> list[ResultRow]:
    """Return the rows of these examples in the same order, in a fixed number of queries.

    With `is_embedded`, their content is only to be encoded: see `embedded_content`.
    """
    runs_by_example: dict[UUID, list[RunDetail]] = defaultdict(list)
    for run in run_store.fetch_example_runs(
        query.workspace_id, query.experiment_ids, examples, payloads=payloads
    ):
        if run.row.reference_example_id is not None:
            runs_by_example[run.row.reference_example_id].append(run)
    revisions = load_revisions(
        query.dataset,
        [item.example_id for item in examples],
        version_of(query.experiments),
        is_embedded=is_embedded,
    )
    return [
        ResultRow(
            item.example_id,
            item.first_time,
            revisions.get(item.example_id),
            runs_by_example[item.example_id],
        )
        for item in examples
    ]


def version_of(experiments: Sequence[Project]) -> datetime | None:
    """Return the newest version of the dataset that one of the experiments ran on, if known."""
    versions = []
    for project in experiments:
        metadata: Any = project.extra.get("metadata")
        version = metadata.get("dataset_version") if isinstance(metadata, dict) else None
        if isinstance(version, str):
            try:
                versions.append(parse_timestamp(version, "dataset_version"))
            except ValueError:
                continue  # clients may store any text
    return max(versions, default=None)


def load_revisions(
    dataset: Dataset,
    example_ids: Collection[UUID],
    version_at: datetime | None,
    *,
    with_content: bool = True,
    is_embedded: bool = False,
) -> dict[UUID, ExampleRevision]:
    """Return the newest revision of each example at the time, also of deleted examples.

    Examples that were created later, for another experiment, have their newest revision. Without
    `with_content`, only the metadata is loaded.
    """
    rows = ExampleRevision.objects.for_workspace(dataset.workspace_id).filter(dataset=dataset)
    if not with_content:
        rows = rows.only("example_id", "metadata")
    if is_embedded:
        rows = with_embedded_content(rows)
    rows = rows.order_by("example_id", "-valid_from").distinct("example_id")
    revisions: dict[UUID, ExampleRevision] = {}
    if version_at is not None:
        at_time = rows.filter(example_id__in=example_ids, valid_from__lte=version_at)
        revisions = {revision.example_id: revision for revision in at_time}
    missing = set(example_ids) - revisions.keys()
    if missing:
        for revision in rows.filter(example_id__in=missing):
            revisions[revision.example_id] = revision
    return revisions
