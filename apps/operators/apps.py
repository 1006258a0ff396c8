from django.apps import AppConfig


class OperatorsConfig(AppConfig):
    name = "apps.operators"

    def ready(self) -> None:
        from apps.operators import metrics  # noqa: F401, PLC0415 -- connects its signals
