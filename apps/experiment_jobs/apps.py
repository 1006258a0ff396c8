from django.apps import AppConfig


class ExperimentJobsConfig(AppConfig):
    name = "apps.experiment_jobs"
