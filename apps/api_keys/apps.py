from uuid import UUID

from django.apps import AppConfig


class ApiKeysConfig(AppConfig):
    name = "apps.api_keys"
    verbose_name = "API keys"

    def ready(self) -> None:
        from apps.api_keys.models import ApiKey  # noqa: PLC0415
        from apps.api_keys.services import issue_keys  # noqa: PLC0415
        from apps.audit.actors import register_label  # noqa: PLC0415
        from apps.audit.models import ActorKind  # noqa: PLC0415
        from apps.organizations import hooks  # noqa: PLC0415

        hooks.member_removed.connect(issue_keys.revoke_personal_keys)
        hooks.workspace_deleted.connect(issue_keys.revoke_keys_of_workspace)

        def label(key_id: UUID) -> str | None:
            key = ApiKey.objects.filter(pk=key_id).first()
            return None if key is None else str(key)

        register_label(ActorKind.KEY, label)
