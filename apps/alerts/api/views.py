"""API of alert rules: the routes of the public API by project, and those of all rules."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.urls import path
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework.response import Response

from apps.alerts.api.serializers import (
    AlertChangesSerializer,
    AlertListSerializer,
    AlertPageSerializer,
    CreateAlertSerializer,
    CreateWorkspaceAlertSerializer,
    PreviewSerializer,
    RuleSerializer,
    SilenceSerializer,
    alert_json,
    incident_json,
    preview_json,
    rule_fields,
)
from apps.alerts.models import AlertIncident, AlertRule
from apps.alerts.querysets import AlertRuleQuerySet
from apps.alerts.services import notices, rules
from apps.alerts.services.preview import preview
from apps.core.api import ApiRequest, WorkspaceAPIView, validate
from apps.core.tenancy import get_or_404
from apps.deployments.models import Deployment
from apps.organizations.permissions import Permission
from apps.tracing.services import get_project
from apps.webhooks import delivery_queue
from apps.webhooks.models import Delivery


class AlertAPIView(WorkspaceAPIView):
    required_permission = {
        "GET": Permission.ALERTS_READ,
        "*": Permission.ALERTS_WRITE,
    }

    @property
    def rules(self) -> AlertRuleQuerySet:
        rows = AlertRule.objects.for_workspace(self.workspace_id)
        return rows.select_related("project", "deployment").prefetch_related("actions")

    def get_rule(self, rule_id: UUID, project_id: UUID | None = None) -> AlertRule:
        """Return the rule; with `project_id` only one of this project."""
        if project_id is None:
            return get_or_404(self.rules, pk=rule_id)
        return get_or_404(self.rules, pk=rule_id, project_id=project_id)

    def list_rules(self, request: ApiRequest, **scope: Any) -> Response:
        params = validate(AlertPageSerializer, request.query_params)
        rows = self.rules.filter(**scope).newest_first()
        start, stop = params["offset"], params["offset"] + params["limit"]
        return Response([alert_json(row) for row in rows[start:stop]])

    def build_rule(self, params: Mapping[str, Any], project_id: UUID | None = None) -> AlertRule:
        """Return the unsaved rule. Raises `NotFound` for a foreign project or deployment."""
        rule = AlertRule(
            workspace_id=self.workspace_id,
            created_by_id=self.request.auth.user_id,
            **rule_fields(params),
        )
        project_id = project_id or params.get("session_id")
        if project_id is not None:
            rule.project = get_project(self.workspace_id, project_id)
        if params.get("deployment_id") is not None:
            deployments = Deployment.objects.for_workspace(self.workspace_id).present()
            rule.deployment = get_or_404(deployments, pk=params["deployment_id"])
        return rule

    def create_rule(self, params: Mapping[str, Any], project_id: UUID | None = None) -> Response:
        rule = self.build_rule(params["rule"], project_id)
        secrets = rules.create_rule(rule=rule, actions=params.get("actions") or ())
        return Response(alert_json(rule, secrets), status=201)


class AlertsView(AlertAPIView):
    @extend_schema(parameters=[AlertListSerializer], responses=dict)
    def get(self, request: ApiRequest) -> Response:
        """List the rules of the workspace, of one project or of one deployment."""
        params = validate(AlertListSerializer, request.query_params)
        names = {"session_id": "project_id", "deployment_id": "deployment_id"}
        scope = {column: params[name] for name, column in names.items() if name in params}
        return self.list_rules(request, **scope)

    @extend_schema(request=CreateWorkspaceAlertSerializer, responses=dict)
    def post(self, request: ApiRequest) -> Response:
        """Create a rule of a project, a deployment or, without both, the workspace."""
        return self.create_rule(validate(CreateWorkspaceAlertSerializer, request.data))


class ProjectAlertsView(AlertAPIView):
    @extend_schema(parameters=[AlertPageSerializer], responses=dict)
    def get(self, request: ApiRequest, project_id: UUID) -> Response:
        project = get_project(self.workspace_id, project_id)
        return self.list_rules(request, project=project)

    @extend_schema(request=CreateAlertSerializer, responses=dict)
    def post(self, request: ApiRequest, project_id: UUID) -> Response:
        get_project(self.workspace_id, project_id)
        return self.create_rule(validate(CreateAlertSerializer, request.data), project_id)


class AlertView(AlertAPIView):
    @extend_schema(responses=dict)
    def get(self, request: ApiRequest, rule_id: UUID, project_id: UUID | None = None) -> Response:
        return Response(alert_json(self.get_rule(rule_id, project_id)))

    @extend_schema(request=AlertChangesSerializer, responses=dict)
    def patch(self, request: ApiRequest, rule_id: UUID, project_id: UUID | None = None) -> Response:
        """Change fields of the rule; `actions`, if given, replaces all actions."""
        rule = self.get_rule(rule_id, project_id)
        params = validate(AlertChangesSerializer, request.data)
        changes = validate(RuleSerializer, params.get("rule") or {}, partial=True)
        changed, secrets = rules.update_rule(
            rule=rule, changes=rule_fields(changes), actions=params.get("actions")
        )
        return Response(alert_json(changed, secrets))

    @extend_schema(responses={204: None})
    def delete(
        self, request: ApiRequest, rule_id: UUID, project_id: UUID | None = None
    ) -> Response:
        rules.delete_rule(rule=self.get_rule(rule_id, project_id))
        return Response(status=204)


class ProjectAlertTestView(AlertAPIView):
    @extend_schema(request=CreateAlertSerializer, responses=dict)
    def post(self, request: ApiRequest, project_id: UUID) -> Response:
        """Send a test notice once to actions that are not saved."""
        project = get_project(self.workspace_id, project_id)
        params = validate(CreateAlertSerializer, request.data)
        rule = self.build_rule(params["rule"], project.pk)
        results = rules.send_unsaved_test(rule=rule, actions=params.get("actions") or ())
        return Response(
            {
                "results": [
                    {
                        "status": "delivered" if result.is_delivered else "failed",
                        "message": result.error
                        or f"The receiver responded with status {result.status}.",
                    }
                    for result in results
                ]
            }
        )


class AlertTestView(AlertAPIView):
    @extend_schema(request=None, responses=dict)
    def post(self, request: ApiRequest, rule_id: UUID, project_id: UUID | None = None) -> Response:
        """Send a test notice to each action; the log of deliveries has the results."""
        rule = self.get_rule(rule_id, project_id)
        return Response({"delivery_count": notices.send_test(rule=rule)}, status=202)


class AlertSilenceView(AlertAPIView):
    @extend_schema(request=SilenceSerializer, responses=dict)
    def post(self, request: ApiRequest, rule_id: UUID) -> Response:
        """Announce no incident for some minutes; null ends the silence."""
        rule = self.get_rule(rule_id)
        minutes = validate(SilenceSerializer, request.data)["minutes"]
        until = None if minutes is None else timezone.now() + timedelta(minutes=minutes)
        return Response(alert_json(rules.silence_rule(rule=rule, until=until)))


class AlertPreviewView(AlertAPIView):
    @extend_schema(request=PreviewSerializer, responses=dict)
    def post(self, request: ApiRequest) -> Response:
        """Return the incidents that the rule would have had in the last weeks."""
        rule = self.build_rule(validate(PreviewSerializer, request.data)["rule"])
        rules.validate_rule(rule)
        return Response(preview_json(preview(rule)))


class AlertIncidentsView(AlertAPIView):
    @extend_schema(parameters=[AlertPageSerializer], responses=dict)
    def get(self, request: ApiRequest, rule_id: UUID) -> Response:
        """List the incidents of the rule, newest first."""
        rule = self.get_rule(rule_id)
        params = validate(AlertPageSerializer, request.query_params)
        rows = AlertIncident.objects.for_workspace(self.workspace_id).filter(rule=rule)
        start, stop = params["offset"], params["offset"] + params["limit"]
        return Response([incident_json(row) for row in rows.newest_first()[start:stop]])


class AlertDeliveriesView(AlertAPIView):
    @extend_schema(parameters=[AlertPageSerializer], responses=dict)
    def get(self, request: ApiRequest, rule_id: UUID) -> Response:
        """List the deliveries of the rule's notices with their attempts, newest first."""
        rule = self.get_rule(rule_id)
        params = validate(AlertPageSerializer, request.query_params)
        rows = Delivery.objects.for_workspace(self.workspace_id).filter(subject_id=rule.pk)
        start, stop = params["offset"], params["offset"] + params["limit"]
        return Response(
            [
                delivery_queue.to_json(row) | {"action_id": row.endpoint_id}
                for row in rows.newest_first()[start:stop]
            ]
        )


class AlertReplayView(AlertAPIView):
    @extend_schema(request=None, responses=dict)
    def post(self, request: ApiRequest, rule_id: UUID, delivery_id: UUID) -> Response:
        """Send a finished delivery again, under its `webhook-id`."""
        rule = self.get_rule(rule_id)
        rows = Delivery.objects.for_workspace(self.workspace_id).filter(subject_id=rule.pk)
        copy = rules.replay_delivery(delivery=get_or_404(rows, pk=delivery_id))
        return Response(delivery_queue.to_json(copy), status=202)


_ALERTS = "v1/platform/alerts"
_RULE = f"{_ALERTS}/rules/<uuid:rule_id>"
_PROJECT = f"{_ALERTS}/<uuid:project_id>"
routes = [
    path(_ALERTS, AlertsView.as_view(), name="alerts"),
    path(f"{_ALERTS}/preview", AlertPreviewView.as_view(), name="alert-rule-preview"),
    path(_RULE, AlertView.as_view(), name="alert-rule"),
    path(f"{_RULE}/test", AlertTestView.as_view(), name="alert-rule-test"),
    path(f"{_RULE}/silence", AlertSilenceView.as_view(), name="alert-rule-silence"),
    path(f"{_RULE}/incidents", AlertIncidentsView.as_view(), name="alert-rule-incidents"),
    path(f"{_RULE}/deliveries", AlertDeliveriesView.as_view(), name="alert-rule-deliveries"),
    path(
        f"{_RULE}/deliveries/<uuid:delivery_id>/replay",
        AlertReplayView.as_view(),
        name="alert-rule-replay",
    ),
    path(_PROJECT, ProjectAlertsView.as_view(), name="project-alert-rules"),
    path(f"{_PROJECT}/test", ProjectAlertTestView.as_view(), name="project-alert-rules-test"),
    path(f"{_PROJECT}/<uuid:rule_id>", AlertView.as_view(), name="project-alert-rule"),
    path(
        f"{_PROJECT}/<uuid:rule_id>/test", AlertTestView.as_view(), name="project-alert-rule-test"
    ),
]
