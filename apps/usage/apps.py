from django.apps import AppConfig


class UsageConfig(AppConfig):
    name = "apps.usage"

    def ready(self) -> None:
        from apps.usage import meter, usage_sources  # noqa: PLC0415

        usage_sources.register(meter.totals)
