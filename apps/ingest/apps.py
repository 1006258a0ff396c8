from django.apps import AppConfig


class IngestConfig(AppConfig):
    name = "apps.ingest"

    def ready(self) -> None:
        from apps.ingest.services import deferred_operations  # noqa: PLC0415
        from apps.tracing import hooks  # noqa: PLC0415

        hooks.runs_removed.connect(deferred_operations.delete_awaiting)
