"""API routes of evaluators and their rules."""

from django.urls import path

from apps.evaluators.api import rule_pages, spend, views

_EVALUATORS = "v1/platform/evaluators"
_RULES = "runs/rules"
_RULE = f"{_RULES}/<uuid:evaluator_rule_id>"
urlpatterns = [
    path(_EVALUATORS, views.EvaluatorsView.as_view(), name="evaluators"),
    path(f"{_EVALUATORS}/spend", spend.EvaluatorSpendView.as_view(), name="evaluator-spend"),
    path(f"{_EVALUATORS}/<uuid:evaluator_id>", views.EvaluatorView.as_view(), name="evaluator"),
    path(_RULES, views.EvaluatorRulesView.as_view(), name="evaluator-rules"),
    path(f"{_RULES}/validate", views.ValidateRuleView.as_view(), name="evaluator-rule-validate"),
    path("v2/runs/rules", rule_pages.RulePageView.as_view(), name="v2-evaluator-rules"),
    path(
        f"{_RULES}/trigger",
        views.TriggerEvaluatorRulesView.as_view(),
        name="evaluator-rules-trigger",
    ),
    path(
        "runs/experiments/<uuid:experiment_id>/evaluate",
        views.EvaluateExperimentView.as_view(),
        name="experiment-evaluate",
    ),
    path(_RULE, views.EvaluatorRuleView.as_view(), name="evaluator-rule"),
    path(f"{_RULE}/logs", views.EvaluatorRuleLogsView.as_view(), name="evaluator-rule-logs"),
    path(
        f"{_RULE}/logs/v2",
        rule_pages.AppliedRunsView.as_view(),
        name="evaluator-rule-applied-runs",
    ),
    path(f"{_RULE}/backfill", views.RuleBackfillView.as_view(), name="evaluator-rule-backfill"),
    path(
        f"{_RULE}/last_applied",
        views.EvaluatorRuleLastAppliedView.as_view(),
        name="evaluator-rule-last-applied",
    ),
    path(
        f"{_RULE}/trigger",
        views.TriggerEvaluatorRuleView.as_view(),
        name="evaluator-rule-trigger",
    ),
]
