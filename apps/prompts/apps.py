from uuid import UUID

from django.apps import AppConfig


class PromptsConfig(AppConfig):
    name = "apps.prompts"

    def ready(self) -> None:
        from apps.organizations import hooks  # noqa: PLC0415
        from apps.organizations.models import ResourceType  # noqa: PLC0415
        from apps.prompts.models import Repository  # noqa: PLC0415
        from apps.prompts.querysets import RepositoryQuerySet  # noqa: PLC0415
        from apps.prompts.run_links import find_prompt_link  # noqa: PLC0415
        from apps.prompts.services import repositories, webhooks  # noqa: PLC0415
        from apps.tracing.hooks import register_prompt_lookup  # noqa: PLC0415
        from apps.webhooks.request_builders import register_request_builder  # noqa: PLC0415

        def prompts(workspace_id: UUID) -> RepositoryQuerySet:
            return Repository.objects.for_workspace(workspace_id)

        hooks.register_resource(ResourceType.PROMPT, prompts, name="handle")
        hooks.public_links_revoked.connect(repositories.unpublish_organization)
        register_prompt_lookup(find_prompt_link)
        register_request_builder(webhooks.KIND, webhooks.build_delivery_request)
