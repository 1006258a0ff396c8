"""API routes of experiment jobs."""

from django.urls import path

from apps.experiment_jobs.api import views

urlpatterns = [
    path(
        "datasets/<uuid:dataset_id>/experiment-jobs",
        views.ExperimentJobsView.as_view(),
        name="experiment-job-list",
    ),
    path(
        "experiment-jobs/<uuid:job_id>",
        views.ExperimentJobView.as_view(),
        name="experiment-job-detail",
    ),
    path(
        "experiment-jobs/<uuid:job_id>/cancel",
        views.CancelExperimentJobView.as_view(),
        name="experiment-job-cancel",
    ),
    path(
        "experiment-jobs/<uuid:job_id>/resume",
        views.ResumeExperimentJobView.as_view(),
        name="experiment-job-resume",
    ),
]
