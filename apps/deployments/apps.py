from django.apps import AppConfig


class DeploymentsConfig(AppConfig):
    name = "apps.deployments"

    def ready(self) -> None:
        # Checks register themselves. Services send tasks and tasks call services: loaded here, by
        # one door, they are whole whichever of them is asked for first.
        from apps.deployments import checks, tasks  # noqa: F401, PLC0415
