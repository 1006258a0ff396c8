from django.apps import AppConfig


class UsageConfig(AppConfig):
    name = "apps.usage"

    def ready(self) -> None:
        from apps.usage import meter  # noqa: PLC0415

        meter.register_source(meter.sum_counters)
