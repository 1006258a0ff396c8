from uuid import UUID

from django.apps import AppConfig


class MonitoringConfig(AppConfig):
    name = "apps.monitoring"

    def ready(self) -> None:
        from apps.monitoring.models import Section, SectionQuerySet  # noqa: PLC0415
        from apps.organizations import hooks  # noqa: PLC0415
        from apps.organizations.models import ResourceType  # noqa: PLC0415

        def dashboards(workspace_id: UUID) -> SectionQuerySet:
            return Section.objects.for_workspace(workspace_id)

        hooks.register_resource(ResourceType.DASHBOARD, dashboards, name="title")
