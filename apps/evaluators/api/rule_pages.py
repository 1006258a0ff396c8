"""Pages by cursor: the rules of a workspace, and the runs that a rule was applied to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from django.db.models import Q
from drf_spectacular.utils import extend_schema
from rest_framework.response import Response

from apps.core.api import ApiRequest, validate
from apps.evaluators.api.base import EvaluatorAPIView, rules_json
from apps.evaluators.api.parameters import AppliedRunsSerializer, RulePageSerializer
from apps.evaluators.models import Evaluation, EvaluatorRule
from apps.evaluators.services import rules
from apps.evaluators.wire import applied_json, rule_v2_json
from apps.trace_store import RunQuery, RunRow, run_store
from apps.trace_store.cursors import decode_cursor, encode_cursor


class RulePageView(EvaluatorAPIView):
    @extend_schema(parameters=[RulePageSerializer], responses=dict)
    def get(self, request: ApiRequest) -> Response:
        """List the rules of the workspace, the last changed first."""
        query = request.query_params
        params = validate(RulePageSerializer, query.dict() | {"id": query.getlist("id")})
        rows = rules.rules_of(self.workspace_id)
        columns = {
            "project_id": "project", "dataset_id": "dataset", "evaluator_id": "evaluator",
            "name_contains": "name__icontains",
        }  # fmt: skip
        rows = rows.filter(**{columns[name]: params[name] for name in columns if name in params})
        if params.get("id"):
            rows = rows.filter(pk__in=params["id"])
        if "type" in params:
            rows = rows.filter(project__isnull=params["type"] == "DATASET")
        if params.get("cursor"):
            at, rule_id = decode_cursor(params["cursor"])
            rows = rows.filter(Q(updated_at__lt=at) | Q(updated_at=at, pk__lt=rule_id))
        size = params["page_size"]
        page: list[EvaluatorRule] = list(rows.order_by("-updated_at", "-pk")[: size + 1])
        last = page[size - 1] if len(page) > size else None
        items = rules_json(page[:size], with_progress=params["include_backfill_progress"])
        return Response(
            {
                "items": [rule_v2_json(item) for item in items],
                "next_cursor": None if last is None else encode_cursor(last.updated_at, last.pk),
            }
        )


class AppliedRunsView(EvaluatorAPIView):
    @extend_schema(parameters=[AppliedRunsSerializer], responses=dict)
    def get(self, request: ApiRequest, evaluator_rule_id: UUID) -> Response:
        """List the runs that the rule was applied to, the last first, with their outcome."""
        rule = rules.get_rule(self.workspace_id, evaluator_rule_id)
        params = validate(AppliedRunsSerializer, request.query_params)
        rows = Evaluation.objects.for_workspace(self.workspace_id).filter(
            rule=rule, ended_at__isnull=False
        )
        if params["backfill"]:
            rows = rows.filter(backfill_id__isnull=False)
        columns = {
            "start_time": "ended_at__gte", "end_time": "ended_at__lt", "session_id": "project_id",
        }  # fmt: skip
        rows = rows.filter(
            **{columns[name]: value for name in columns if (value := params.get(name))}
        )
        if params.get("cursor"):
            at, evaluation_id = decode_cursor(params["cursor"])
            rows = rows.filter(Q(created_at__lt=at) | Q(created_at=at, pk__lt=evaluation_id))
        limit = params["limit"]
        page = list(rows.newest_first()[: limit + 1])
        last = page[limit - 1] if len(page) > limit else None
        shown = page[:limit]
        runs = _load_runs(self.workspace_id, shown)
        return Response(
            {
                "logs": [applied_json(rule, row, runs.get(row.run_id)) for row in shown],
                "cursor": None if last is None else encode_cursor(last.created_at, last.pk),
            }
        )


def _load_runs(workspace_id: UUID, page: Sequence[Evaluation]) -> Mapping[UUID, RunRow]:
    if not page:
        return {}
    query = RunQuery(
        project_ids=list({row.project_id for row in page}), run_ids=[row.run_id for row in page]
    )
    runs = run_store.query(workspace_id, query, limit=len(page)).runs
    return {run.row.id: run.row for run in runs}
