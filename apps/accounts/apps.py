from django.apps import AppConfig


class AccountsConfig(AppConfig):
    name = "apps.accounts"

    def ready(self) -> None:
        from apps.accounts import (  # noqa: PLC0415 -- connect receivers
            audit_signals,  # noqa: F401
            email_verification,  # noqa: F401
        )
