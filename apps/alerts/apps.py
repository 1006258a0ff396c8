from django.apps import AppConfig


class AlertsConfig(AppConfig):
    name = "apps.alerts"

    def ready(self) -> None:
        from apps.alerts.services import notices  # noqa: PLC0415
        from apps.webhooks.request_builders import register_request_builder  # noqa: PLC0415

        register_request_builder(notices.KIND, notices.build_request)
