"""Endpoints of feedback formulas."""

from __future__ import annotations

import math
from typing import Any
from uuid import UUID

from django.urls import path
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.response import Response

from apps.core.api import ApiRequest, WorkspaceAPIView
from apps.core.tenancy import get_or_404
from apps.feedback.api.queries import FeedbackPageSerializer, query_params
from apps.feedback.api.rendering import formula_json
from apps.feedback.models import KEY_LENGTH, Aggregation, FeedbackFormula
from apps.feedback.services import formulas as services
from apps.organizations.permissions import Permission

MAX_PARTS = 50
MAX_WEIGHT = 1e12


class PartSerializer(serializers.Serializer[Any]):
    part_type = serializers.ChoiceField(choices=["weighted_key"])
    key = serializers.CharField(max_length=KEY_LENGTH)
    weight = serializers.FloatField(min_value=-MAX_WEIGHT, max_value=MAX_WEIGHT)

    def validate_weight(self, value: float) -> float:
        # The text "nan" is a float, and no comparison with a limit rejects it.
        if not math.isfinite(value):
            raise serializers.ValidationError("Must be a finite number.")
        return value


class ChangeFormulaSerializer(serializers.Serializer[Any]):
    feedback_key = serializers.CharField(max_length=KEY_LENGTH)
    aggregation_type = serializers.ChoiceField(choices=Aggregation.choices)
    formula_parts = serializers.ListField(
        child=PartSerializer(), min_length=1, max_length=MAX_PARTS
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        keys = [part["key"] for part in attrs["formula_parts"]]
        if len(set(keys)) < len(keys):
            raise serializers.ValidationError(
                "`formula_parts`: each part must have a different `key`."
            )
        if attrs["feedback_key"] in keys:
            raise serializers.ValidationError(
                "`formula_parts`: `feedback_key` must not be the key of a part."
            )
        return attrs

    def row_fields(self) -> dict[str, Any]:
        params: dict[str, Any] = self.validated_data
        return {
            "key": params["feedback_key"],
            "aggregation": params["aggregation_type"],
            "parts": [dict(part) for part in params["formula_parts"]],
        }


class CreateFormulaSerializer(ChangeFormulaSerializer):
    dataset_id = serializers.UUIDField(required=False, allow_null=True, default=None)
    session_id = serializers.UUIDField(required=False, allow_null=True, default=None)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if (attrs["dataset_id"] is None) == (attrs["session_id"] is None):
            raise serializers.ValidationError("Set either `session_id` or `dataset_id`.")
        return super().validate(attrs)

    def row_fields(self) -> dict[str, Any]:
        params: dict[str, Any] = self.validated_data
        scope = {"project_id": params["session_id"], "dataset_id": params["dataset_id"]}
        return super().row_fields() | scope


class FormulaListSerializer(FeedbackPageSerializer):
    dataset_id = serializers.UUIDField(required=False)
    session_id = serializers.UUIDField(required=False)


class FormulasView(WorkspaceAPIView):
    required_permission = {"GET": Permission.FEEDBACK_READ, "*": Permission.FEEDBACK_WRITE}

    @extend_schema(parameters=[FormulaListSerializer], responses=dict)
    def get(self, request: ApiRequest) -> Response:
        """Return a page of formulas, oldest first."""
        query = FormulaListSerializer(data=query_params(request))
        query.is_valid(raise_exception=True)
        params: dict[str, Any] = query.validated_data
        rows = FeedbackFormula.objects.for_workspace(self.workspace_id)
        if "dataset_id" in params:
            rows = rows.filter(dataset_id=params["dataset_id"])
        if "session_id" in params:
            rows = rows.filter(project_id=params["session_id"])
        return Response(
            [formula_json(item) for item in rows.order_by("created_at", "pk")[query.page]]
        )

    @extend_schema(request=CreateFormulaSerializer, responses=dict)
    def post(self, request: ApiRequest) -> Response:
        """Create a formula; a task applies it to existing feedback."""
        body = CreateFormulaSerializer(data=request.data)
        body.is_valid(raise_exception=True)
        formula = services.create_formula(self.workspace_id, **body.row_fields())
        return Response(formula_json(formula))


class FormulaView(WorkspaceAPIView):
    required_permission = {"GET": Permission.FEEDBACK_READ, "*": Permission.FEEDBACK_WRITE}

    def _get_formula(self, formula_id: UUID) -> FeedbackFormula:
        return get_or_404(FeedbackFormula.objects.for_workspace(self.workspace_id), pk=formula_id)

    @extend_schema(responses=dict)
    def get(self, request: ApiRequest, formula_id: UUID) -> Response:
        return Response(formula_json(self._get_formula(formula_id)))

    @extend_schema(request=ChangeFormulaSerializer, responses=dict)
    def put(self, request: ApiRequest, formula_id: UUID) -> Response:
        formula = self._get_formula(formula_id)
        body = ChangeFormulaSerializer(data=request.data)
        body.is_valid(raise_exception=True)
        return Response(formula_json(services.change_formula(formula, **body.row_fields())))

    @extend_schema(responses={204: None})
    def delete(self, request: ApiRequest, formula_id: UUID) -> Response:
        """Delete the formula and its scores."""
        services.delete_formula(self._get_formula(formula_id))
        return Response(status=204)


routes = [
    path("feedback/formulas", FormulasView.as_view(), name="feedback-formula-list"),
    path("feedback/formulas/<uuid:formula_id>", FormulaView.as_view(), name="feedback-formula"),
]
