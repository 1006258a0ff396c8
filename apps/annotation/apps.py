from django.apps import AppConfig


class AnnotationConfig(AppConfig):
    name = "apps.annotation"

    def ready(self) -> None:
        from apps.annotation.models import AnnotationQueue  # noqa: PLC0415
        from apps.annotation.services import items, queues, reviewers  # noqa: PLC0415
        from apps.organizations import hooks  # noqa: PLC0415
        from apps.organizations.models import ResourceType  # noqa: PLC0415
        from apps.trace_store.hooks import register_removal  # noqa: PLC0415

        hooks.register_resource(ResourceType.QUEUE, AnnotationQueue.objects.for_workspace)
        hooks.workspace_deleted.connect(queues.delete_all)
        hooks.member_removed.connect(reviewers.unassign_member)
        for statement in items.REMOVAL_STATEMENTS:
            register_removal(statement)
