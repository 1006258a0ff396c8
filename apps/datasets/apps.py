from django.apps import AppConfig


class DatasetsConfig(AppConfig):
    name = "apps.datasets"

    def ready(self) -> None:
        from apps.datasets.models import Dataset  # noqa: PLC0415
        from apps.datasets.services import datasets, removal, sharing, source_runs  # noqa: PLC0415
        from apps.organizations import hooks  # noqa: PLC0415
        from apps.organizations.models import ResourceType  # noqa: PLC0415
        from apps.tracing.hooks import (  # noqa: PLC0415
            LinkSource,
            register_dataset_lookup,
            register_link_source,
            register_source_run_lookup,
        )
        from apps.usage import storage  # noqa: PLC0415
        from apps.usage.models import StorageKind  # noqa: PLC0415
        from apps.usage.storage import MeasuredTable  # noqa: PLC0415

        storage.register_table(
            StorageKind.DATASETS,
            MeasuredTable(
                "datasets_examplerevision",
                ["inputs", "outputs", "metadata", "splits", "attachments"],
                other_bytes="r.attachment_bytes",
            ),
        )
        storage.register_table(
            StorageKind.DATASETS, MeasuredTable("datasets_indexedexample", ["embedding"])
        )
        hooks.register_resource(
            ResourceType.DATASET,
            lambda workspace_id: Dataset.objects.for_workspace(workspace_id).present(),
        )
        hooks.workspace_deleted.connect(removal.delete_all)
        hooks.public_links_revoked.connect(sharing.revoke_organization_links)
        register_dataset_lookup(datasets.dataset_exists)
        register_source_run_lookup(source_runs.find_used_runs)
        register_link_source(LinkSource(sharing.list_newest, sharing.revoke_links))
