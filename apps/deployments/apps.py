from uuid import UUID

from django.apps import AppConfig
from django.conf import settings


class DeploymentsConfig(AppConfig):
    name = "apps.deployments"

    def ready(self) -> None:
        from apps.deployments import checks  # noqa: F401, PLC0415 - registers the checks
        from apps.deployments.models import Deployment  # noqa: PLC0415
        from apps.deployments.querysets import DeploymentQuerySet  # noqa: PLC0415
        from apps.deployments.sandbox import cpu_groups  # noqa: PLC0415
        from apps.deployments.services import lifecycle, webhooks  # noqa: PLC0415
        from apps.deployments.trace_links import SOURCE  # noqa: PLC0415
        from apps.organizations import hooks  # noqa: PLC0415
        from apps.organizations.models import ResourceType  # noqa: PLC0415
        from apps.tracing.hooks import register_deployment_source  # noqa: PLC0415
        from apps.webhooks.request_builders import register_request_builder  # noqa: PLC0415

        def deployments(workspace_id: UUID) -> DeploymentQuerySet:
            return Deployment.objects.for_workspace(workspace_id).present()

        cpu_groups.set_weights(agents=settings.AGENT_CPU_WEIGHT, builds=settings.BUILD_CPU_WEIGHT)
        hooks.register_resource(ResourceType.DEPLOYMENT, deployments)
        register_deployment_source(SOURCE)
        register_request_builder(webhooks.KIND, webhooks.build_delivery_request)
        hooks.workspace_deleted.connect(lifecycle.delete_workspace_deployments)
