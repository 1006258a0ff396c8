from django.apps import AppConfig


class ExportsConfig(AppConfig):
    name = "apps.exports"

    def ready(self) -> None:
        from apps.exports import services  # noqa: PLC0415
        from apps.organizations import hooks  # noqa: PLC0415

        hooks.workspace_deleted.connect(services.cancel_all)
