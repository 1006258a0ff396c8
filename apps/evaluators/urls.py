"""Routes of evaluators."""

from django.urls import path

from apps.evaluators import views
from apps.evaluators.api.urls import urlpatterns as api

_WORKSPACE = "o/<uuid:workspace_id>"
_EVALUATORS = f"{_WORKSPACE}/evaluators"
_RULE = f"{_EVALUATORS}/<uuid:evaluator_rule_id>"
_DATASET = f"{_WORKSPACE}/datasets/<uuid:dataset_id>"
urlpatterns = [
    *api,
    path(f"{_DATASET}/evaluators", views.dataset_evaluators, name="dataset-evaluators"),
    path(
        f"{_DATASET}/experiments/evaluations",
        views.experiment_evaluations,
        name="experiment-evaluations",
    ),
    path(
        f"{_WORKSPACE}/projects/p/<uuid:project_id>/evaluators",
        views.project_evaluators,
        name="project-evaluators",
    ),
    path(f"{_EVALUATORS}/new", views.evaluator_new, name="evaluator-new"),
    path(f"{_EVALUATORS}/try", views.evaluator_try, name="evaluator-try"),
    path(_RULE, views.evaluator_detail, name="evaluator-rule-detail"),
    path(f"{_RULE}/edit", views.evaluator_edit, name="evaluator-rule-edit"),
    path(f"{_RULE}/change", views.evaluator_change, name="evaluator-rule-change"),
]
