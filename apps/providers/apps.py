from django.apps import AppConfig


class ProvidersConfig(AppConfig):
    name = "apps.providers"

    def ready(self) -> None:
        from apps.organizations import hooks  # noqa: PLC0415
        from apps.providers.key_addresses import check_key_addresses  # noqa: PLC0415

        hooks.secrets_changing.connect(check_key_addresses)
