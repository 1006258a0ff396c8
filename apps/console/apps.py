from django.apps import AppConfig


class ConsoleConfig(AppConfig):
    name = "apps.console"

    def ready(self) -> None:
        from apps.console import checks  # noqa: F401, PLC0415  (registers them)
