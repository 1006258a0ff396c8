from django.apps import AppConfig


class UsageConfig(AppConfig):
    name = "apps.usage"

    def ready(self) -> None:
        from apps.usage import meter, sources  # noqa: PLC0415  (needs the loaded apps)

        sources.register(meter.metered)
