from django.apps import AppConfig


class TracingConfig(AppConfig):
    name = "apps.tracing"

    def ready(self) -> None:
        from apps.feedback.hooks import retention_extended  # noqa: PLC0415
        from apps.organizations import hooks  # noqa: PLC0415
        from apps.organizations.models import ResourceType  # noqa: PLC0415
        from apps.trace_store.hooks import register_removal  # noqa: PLC0415
        from apps.tracing.models import Project  # noqa: PLC0415
        from apps.tracing.services import projects, retention, sharing, usage  # noqa: PLC0415
        from apps.usage import meter  # noqa: PLC0415

        hooks.register_resource(
            ResourceType.PROJECT,
            lambda workspace_id: (
                Project.objects.for_workspace(workspace_id).present().without_experiments()
            ),
        )
        hooks.register_resource(
            ResourceType.EXPERIMENT,
            lambda workspace_id: (
                Project.objects.for_workspace(workspace_id).present().experiments()
            ),
        )
        hooks.workspace_created.connect(projects.provision_workspace)
        hooks.workspace_deleted.connect(projects.deprovision_workspace)
        hooks.public_links_revoked.connect(sharing.revoke_organization_links)
        meter.register_source(usage.collect_usage)
        register_removal(sharing.REMOVAL_STATEMENT)
        retention_extended.connect(retention.upgrade_traces)
