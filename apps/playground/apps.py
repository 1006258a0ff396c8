from django.apps import AppConfig


class PlaygroundConfig(AppConfig):
    name = "apps.playground"

    def ready(self) -> None:
        from apps.experiment_jobs import runners  # noqa: PLC0415  (needs the apps)
        from apps.playground.services.model_runner import RUNNER, ModelRunner  # noqa: PLC0415

        runners.register_runner(RUNNER, ModelRunner())
