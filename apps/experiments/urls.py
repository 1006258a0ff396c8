"""Pages of experiments, below the page of their dataset."""

from django.urls import path

from apps.experiments import views

_DATASET = "o/<uuid:workspace_id>/datasets/<uuid:dataset_id>"
_EXPERIMENTS = f"{_DATASET}/experiments"
_EXPERIMENT = f"{_EXPERIMENTS}/e/<uuid:project_id>"
urlpatterns = [
    path(_EXPERIMENTS, views.experiments, name="dataset-experiments"),
    # The address that the public clients print when an experiment starts.
    path(f"{_DATASET}/compare", views.client_link, name="dataset-experiments-client-link"),
    path(f"{_EXPERIMENTS}/charts", views.charts, name="dataset-experiments-charts"),
    path(f"{_EXPERIMENTS}/baseline", views.baseline, name="dataset-experiments-baseline"),
    path(f"{_EXPERIMENTS}/compare", views.compare, name="dataset-experiments-compare"),
    path(
        f"{_EXPERIMENTS}/compare/summary",
        views.compare_summary,
        name="dataset-experiments-summary",
    ),
    path(
        f"{_EXPERIMENTS}/compare/<uuid:example_id>",
        views.compare_example,
        name="dataset-experiments-example",
    ),
    path(f"{_EXPERIMENTS}/pairwise", views.pairwise_list, name="dataset-pairwise"),
    path(
        f"{_EXPERIMENTS}/pairwise/<uuid:comparison_id>/delete",
        views.pairwise_delete,
        name="dataset-pairwise-delete",
    ),
    path(
        "public/<uuid:token>/d/experiments",
        views.public_experiments,
        name="public-experiments-page",
    ),
    path(f"{_EXPERIMENT}/edit", views.experiment_edit, name="dataset-experiment-edit"),
    path(f"{_EXPERIMENT}/delete", views.experiment_delete, name="dataset-experiment-delete"),
]
