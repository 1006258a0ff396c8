from django.apps import AppConfig


class BillingConfig(AppConfig):
    name = "apps.billing"

    def ready(self) -> None:
        from apps.billing import database  # noqa: F401, PLC0415  (registers its system check)
