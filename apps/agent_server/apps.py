from django.apps import AppConfig
from django.db.models.signals import pre_migrate


class AgentServerConfig(AppConfig):
    name = "apps.agent_server"
    verbose_name = "Agent server"

    def ready(self) -> None:
        from apps.core.vectors import ensure_extension  # noqa: PLC0415  (models are loaded by now)

        pre_migrate.connect(ensure_extension, sender=self, dispatch_uid="pgvector")
