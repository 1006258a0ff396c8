from django.apps import AppConfig


class FeedbackAppConfig(AppConfig):
    name = "apps.feedback"

    def ready(self) -> None:
        from apps.feedback.services.attach_to_runs import attach_to_changed_runs  # noqa: PLC0415
        from apps.trace_store.hooks import register_postprocess_step  # noqa: PLC0415

        register_postprocess_step(attach_to_changed_runs)
