from django.apps import AppConfig
from django.db.models.signals import post_save, pre_migrate


class AgentServerConfig(AppConfig):
    name = "apps.agent_server"
    verbose_name = "Agent server"

    def ready(self) -> None:
        # The models are loaded by now.
        from apps.agent_server.a2a.statements import PUSH_KIND  # noqa: PLC0415
        from apps.agent_server.services import (  # noqa: PLC0415
            a2a_push,
            run_usage,
            stored_bytes,
            webhooks,
        )
        from apps.core.vectors import ensure_extension  # noqa: PLC0415
        from apps.usage import queues  # noqa: PLC0415
        from apps.webhooks.request_builders import register_request_builder  # noqa: PLC0415

        queues.register_source(run_usage)
        stored_bytes.register()
        register_request_builder(PUSH_KIND, a2a_push.build_request)

        post_save.connect(
            webhooks.create_secret_of_new,
            sender="deployments.Deployment",
            dispatch_uid="webhook secret",
        )
        pre_migrate.connect(ensure_extension, sender=self, dispatch_uid="pgvector")
