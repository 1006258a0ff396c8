from django.apps import AppConfig


class OrganizationsConfig(AppConfig):
    name = "apps.organizations"

    def ready(self) -> None:
        from apps.organizations.services import (  # noqa: PLC0415 -- needs the models
            caller_for,
            organization_caller_for,
        )
        from apps.web_ui.pages import register_caller_lookups  # noqa: PLC0415

        register_caller_lookups(caller_for, organization_caller_for)
