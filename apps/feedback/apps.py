from django.apps import AppConfig


class FeedbackAppConfig(AppConfig):
    name = "apps.feedback"

    def ready(self) -> None:
        from apps.feedback.services.attach_to_runs import (  # noqa: PLC0415
            REMOVAL_STATEMENT,
            attach_to_changed_runs,
        )
        from apps.trace_store.hooks import (  # noqa: PLC0415
            register_postprocess_step,
            register_removal,
        )
        from apps.usage import storage  # noqa: PLC0415
        from apps.usage.models import StorageKind  # noqa: PLC0415
        from apps.usage.storage import MeasuredTable  # noqa: PLC0415

        register_postprocess_step(attach_to_changed_runs)
        register_removal(REMOVAL_STATEMENT)
        columns = ["key", "value", "comment", "correction", "source", "extra", "thread_key"]
        storage.register_table(StorageKind.FEEDBACK, MeasuredTable("feedback_feedback", columns))
