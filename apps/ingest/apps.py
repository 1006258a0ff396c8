from django.apps import AppConfig


class IngestConfig(AppConfig):
    name = "apps.ingest"

    def ready(self) -> None:
        from apps.ingest.otlp import trace_state  # noqa: PLC0415
        from apps.ingest.services import deferred_operations  # noqa: PLC0415
        from apps.trace_store.hooks import register_removal  # noqa: PLC0415

        register_removal(deferred_operations.REMOVAL_STATEMENT)
        register_removal(trace_state.REMOVAL_STATEMENT)
