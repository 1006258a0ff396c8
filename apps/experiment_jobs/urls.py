"""Routes of experiment jobs."""

from django.urls import path

from apps.experiment_jobs import views
from apps.experiment_jobs.api.urls import urlpatterns as api

DATASET = "o/<uuid:workspace_id>/datasets/<uuid:dataset_id>"
urlpatterns = [
    *api,
    path(f"{DATASET}/experiments/run", views.job_new, name="dataset-experiment-run"),
    path(f"{DATASET}/experiments/jobs", views.job_list, name="dataset-experiment-jobs"),
    path(
        "o/<uuid:workspace_id>/experiment-jobs/<uuid:job_id>/cancel",
        views.job_cancel,
        name="dataset-experiment-cancel",
    ),
]
