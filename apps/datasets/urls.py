from django.urls import path

from apps.datasets.views import add_runs, datasets, examples, imports, search, sharing, versions

_DATASETS = "o/<uuid:workspace_id>/datasets"
# The public clients print these addresses of datasets, examples and public links.
_DATASET = f"{_DATASETS}/<uuid:dataset_id>"
_EXAMPLE = f"{_DATASET}/e/<uuid:example_id>"
urlpatterns = [
    path(_DATASETS, datasets.dataset_list, name="dataset-list"),
    path(f"{_DATASETS}/new", datasets.dataset_new, name="dataset-new"),
    path(f"{_DATASETS}/deleted", datasets.dataset_trash, name="dataset-trash"),
    path(f"{_DATASETS}/import", imports.dataset_import, name="dataset-import-new"),
    path(
        f"{_DATASETS}/import/<uuid:import_id>",
        imports.import_progress,
        name="dataset-import-progress",
    ),
    path(f"{_DATASETS}/add", add_runs.dataset_add_runs, name="dataset-add-runs"),
    path(f"{_DATASET}/import", imports.dataset_import, name="dataset-import"),
    path(_DATASET, examples.dataset_examples, name="dataset-examples"),
    path(f"{_DATASET}/split-names", examples.split_names, name="dataset-split-names"),
    path(f"{_DATASET}/selected", examples.bulk_action, name="dataset-bulk-action"),
    path(f"{_DATASET}/restored-examples", examples.restore, name="dataset-restore-examples"),
    path(f"{_DATASET}/new-example", examples.example_new, name="example-new"),
    path(_EXAMPLE, examples.example_detail, name="example-detail"),
    path(f"{_EXAMPLE}/edit", examples.example_edit, name="example-edit"),
    path(f"{_EXAMPLE}/delete", examples.example_delete, name="example-delete"),
    path(f"{_EXAMPLE}/<payload:payload>.json", examples.example_payload, name="example-payload"),
    path(f"{_EXAMPLE}/files/<int:number>", examples.example_file, name="example-file"),
    path(f"{_DATASET}/versions", versions.dataset_history, name="dataset-history"),
    path(f"{_DATASET}/versions/diff", versions.dataset_changes, name="dataset-changes"),
    path(f"{_DATASET}/versions/tags", versions.version_tag, name="dataset-version-tag"),
    path(f"{_DATASET}/export/<str:export_format>", sharing.dataset_export, name="dataset-export"),
    path(f"{_DATASET}/similar", search.dataset_similar, name="dataset-similar"),
    path(f"{_DATASET}/similar/index", search.change_index, name="dataset-index-change"),
    path(f"{_DATASET}/link", sharing.dataset_link, name="dataset-link"),
    path("public/<uuid:token>/d", sharing.public_dataset, name="public-dataset-page"),
    path(
        "public/<uuid:token>/d/<uuid:example_id>",
        sharing.public_example,
        name="public-example-page",
    ),
    path(f"{_DATASET}/settings", datasets.dataset_settings, name="dataset-settings"),
    path(f"{_DATASET}/delete", datasets.dataset_delete, name="dataset-delete"),
    path(f"{_DATASET}/undelete", datasets.dataset_undelete, name="dataset-undelete"),
]
