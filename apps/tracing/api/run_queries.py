"""What a client asks of runs, as a query of the store: one reading for lists, sums and groups."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from apps.core import errors as core_errors
from apps.trace_store import RunQuery, filters
from apps.trace_store.filters import Expression
from apps.tracing.models import Project

ONE_OF = ("session", "id", "trace", "parent_run", "reference_example", "reference_dataset_id")
# What PostgreSQL's times and ours can be moved within, by days.
_EARLIEST = datetime(1900, 1, 1, tzinfo=UTC)
_LATEST = datetime(9000, 1, 1, tzinfo=UTC)


def run_query(workspace_id: UUID, asked: dict[str, Any]) -> RunQuery:
    """The runs that a checked body of the first protocol asks for."""
    if all(asked.get(name) is None for name in ONE_OF):
        raise core_errors.BadRequest(f"At least one of {', '.join(ONE_OF)} must be given.")
    oldest_first = asked.get("order") == "asc"
    if asked.get("id"):  # as documented, ids go before everything else
        return RunQuery(run_ids=asked["id"], oldest_first=oldest_first)
    is_root = asked.get("is_root")
    if is_root is None and asked.get("execution_order") == 1:
        is_root = True
    return RunQuery(
        project_ids=projects_of(
            workspace_id, asked.get("session"), asked.get("reference_dataset_id")
        ),
        trace_id=asked.get("trace"),
        parent_run_id=asked.get("parent_run"),
        reference_example_ids=asked.get("reference_example"),
        run_type=asked.get("run_type"),
        is_root=is_root,
        has_error=asked.get("error"),
        started_from=moment(asked.get("start_time")),
        started_until=moment(asked.get("end_time")),
        where=expression(asked.get("filter"), asked.get("search_filter"), searched(asked)),
        where_root=expression(asked.get("trace_filter")),
        where_any=expression(asked.get("tree_filter")),
        oldest_first=oldest_first,
    )


def projects_of(
    workspace_id: UUID, project_ids: Sequence[UUID] | None, dataset_id: UUID | None
) -> Sequence[UUID] | None:
    """The projects that are named, those of the dataset's experiments, or what is both."""
    if dataset_id is None:
        return project_ids
    experiments = Project.objects.for_workspace(workspace_id).present()
    found = set(experiments.filter(reference_dataset_id=dataset_id).values_list("pk", flat=True))
    return sorted(found if project_ids is None else found & set(project_ids))


def expression(*texts: str | None) -> Expression | None:
    """What is true when all of these filters are; `FilterError` names the column of a mistake."""
    return filters.all_of([filters.parse(text) for text in texts if text])


def searched(asked: dict[str, Any]) -> str | None:
    """Words in plain language are looked for; that they were is told as `parsed_query`."""
    words = asked.get("query")
    return f"search({filters.quote(words)})" if words else None


def moment(given: datetime | None) -> datetime | None:
    """A time of the wire; without a zone it is UTC."""
    if given is None:
        return None
    if given.tzinfo is None:
        given = given.replace(tzinfo=UTC)
    return min(max(given, _EARLIEST), _LATEST)


def uuid_of(text: str | None, name: str) -> UUID | None:
    """An id in a query string."""
    try:
        return UUID(text) if text else None
    except ValueError:
        raise core_errors.Invalid(f"{name}: not a UUID.") from None


def ids(values: Collection[Any]) -> list[UUID]:
    return [value if isinstance(value, UUID) else UUID(str(value)) for value in values]
