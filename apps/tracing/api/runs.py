"""Reading runs, first version of the protocol."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.urls import path
from drf_spectacular.utils import extend_schema
from rest_framework.response import Response

from apps.core import errors as core_errors
from apps.core.api import ApiRequest, WorkspaceAPIView
from apps.organizations.permissions import Permission
from apps.tracing import errors, store
from apps.tracing.api.rendering import HEAVY, as_utc, run_json
from apps.tracing.api.serializers import RunsQuerySerializer
from apps.tracing.store import Payload, RunQuery

LARGEST_PAGE = 100
LARGEST_PAGE_OF_TRACE = 1000
NOT_UNDERSTOOD = ("filter", "trace_filter", "tree_filter", "search_filter", "reference_dataset_id")
ONE_OF = ("session", "id", "trace", "parent_run", "reference_example")


class RunView(WorkspaceAPIView):
    required_permission = Permission.RUNS_READ

    @extend_schema(responses=dict)
    def get(self, request: ApiRequest, run_id: UUID) -> Response:
        """The run with everything it has; `session_id` chooses between projects that share it."""
        project_id = _uuid(request.query_params.get("session_id"))
        left_out = request.query_params.get("exclude_serialized", "").lower() == "true"
        wanted = set(Payload) - ({Payload.SERIALIZED} if left_out else set())
        run = store.runs.get(self.workspace_id, run_id, project_id=project_id, payloads=wanted)
        if run is None:
            raise errors.RunNotFound
        return Response(run_json(run, wanted))


class RunsQueryView(WorkspaceAPIView):
    required_permission = Permission.RUNS_READ

    @extend_schema(request=RunsQuerySerializer, responses=dict)
    def post(self, request: ApiRequest) -> Response:
        """A page of runs. What this server would have to ignore it refuses by name."""
        for name in NOT_UNDERSTOOD:
            if isinstance(request.data, dict) and request.data.get(name):
                raise errors.NotSupported(f"`{name}` is not supported by this server yet.")
        body = RunsQuerySerializer(data=request.data)
        body.is_valid(raise_exception=True)
        asked: dict[str, Any] = body.validated_data
        select = asked.get("select")
        wanted = [p for name, p in HEAVY.items() if select is None or name in select]
        page = store.runs.query(
            self.workspace_id,
            _query(asked),
            limit=_limit(asked),
            cursor=asked.get("cursor"),
            payloads=wanted,
        )
        return Response(
            {
                "runs": [run_json(run, wanted) for run in page.runs],
                "cursors": {"next": page.next_cursor, "prev": None},
                "parsed_query": None,
                "search_cursors": None,
            }
        )


def _query(asked: dict[str, Any]) -> RunQuery:
    if all(asked.get(name) is None for name in ONE_OF):
        raise core_errors.BadRequest(f"At least one of {', '.join(ONE_OF)} must be given.")
    oldest_first = asked.get("order") == "asc"
    if asked.get("id"):  # as documented, ids go before everything else
        return RunQuery(run_ids=asked["id"], oldest_first=oldest_first)
    is_root = asked.get("is_root")
    if is_root is None and asked.get("execution_order") == 1:
        is_root = True
    begin, end = asked.get("start_time"), asked.get("end_time")
    return RunQuery(
        project_ids=asked.get("session"),
        trace_id=asked.get("trace"),
        parent_run_id=asked.get("parent_run"),
        reference_example_ids=asked.get("reference_example"),
        run_type=asked.get("run_type"),
        is_root=is_root,
        has_error=asked.get("error"),
        started_from=None if begin is None else as_utc(begin),
        started_until=None if end is None else as_utc(end),
        oldest_first=oldest_first,
    )


def _limit(asked: dict[str, Any]) -> int:
    """Clients pass their user's limit as it is; pages are smaller and lead on by a cursor."""
    if asked.get("trace"):
        return LARGEST_PAGE_OF_TRACE
    return min(asked.get("limit") or LARGEST_PAGE, LARGEST_PAGE)


def _uuid(text: str | None) -> UUID | None:
    try:
        return UUID(text) if text else None
    except ValueError:
        raise core_errors.Invalid("session_id: not a UUID.") from None


routes = [path("runs/query", RunsQueryView.as_view(), name="run-query")]
