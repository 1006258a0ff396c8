from uuid import UUID

from django.apps import AppConfig


class ApiKeysConfig(AppConfig):
    name = "apps.api_keys"
    verbose_name = "API keys"

    def ready(self) -> None:
        from apps.api_keys.models import ApiKey  # noqa: PLC0415
        from apps.api_keys.services import issuing  # noqa: PLC0415
        from apps.audit.actors import describe  # noqa: PLC0415
        from apps.audit.models import ActorKind  # noqa: PLC0415
        from apps.organizations import hooks  # noqa: PLC0415

        hooks.member_removed.connect(issuing.revoke_personal_keys)
        hooks.workspace_deleted.connect(issuing.revoke_keys_of_workspace)

        def label(key_id: UUID) -> str | None:
            key = ApiKey.objects.filter(pk=key_id).first()
            return None if key is None else str(key)

        describe(ActorKind.KEY, label)
