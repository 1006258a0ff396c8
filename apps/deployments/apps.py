from django.apps import AppConfig


class DeploymentsConfig(AppConfig):
    name = "apps.deployments"

    def ready(self) -> None:
        from apps.deployments import checks  # noqa: F401, PLC0415  (registers them)
