from django.apps import AppConfig


class OrganizationsConfig(AppConfig):
    name = "apps.organizations"

    def ready(self) -> None:
        from apps.organizations.services import caller_for  # noqa: PLC0415 -- needs the models
        from apps.web_ui.pages import register_caller_lookup  # noqa: PLC0415

        register_caller_lookup(caller_for)
