from uuid import UUID

from django.apps import AppConfig


class TracingConfig(AppConfig):
    name = "apps.tracing"

    def ready(self) -> None:
        from apps.feedback.hooks import retention_extended  # noqa: PLC0415
        from apps.organizations import hooks, resources  # noqa: PLC0415
        from apps.organizations.models import ResourceType  # noqa: PLC0415
        from apps.tracing.models import Project  # noqa: PLC0415
        from apps.tracing.querysets import ProjectQuerySet  # noqa: PLC0415
        from apps.tracing.services import retention, usage, workspace_hooks  # noqa: PLC0415
        from apps.usage import usage_sources  # noqa: PLC0415

        def projects(workspace_id: UUID) -> ProjectQuerySet:
            present = Project.objects.for_workspace(workspace_id).present()
            return present.filter(reference_dataset_id=None)

        def experiments(workspace_id: UUID) -> ProjectQuerySet:
            present = Project.objects.for_workspace(workspace_id).present()
            return present.exclude(reference_dataset_id=None)

        resources.describe(ResourceType.PROJECT, projects)
        resources.describe(ResourceType.EXPERIMENT, experiments)
        hooks.workspace_created.connect(workspace_hooks.provision)
        hooks.workspace_deleted.connect(workspace_hooks.deprovision)
        hooks.public_links_revoked.connect(workspace_hooks.revoke_public_links)
        usage_sources.register(usage.collect_usage)
        retention_extended.connect(retention.upgrade_traces)
