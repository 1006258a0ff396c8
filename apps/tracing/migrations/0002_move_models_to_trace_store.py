"""Hand four tables of runs over to `trace_store`, whose migration 0003 takes them over.

The tables keep their rows under a new name; their content types keep the permissions and log
entries that refer to them.
"""

from django.db import migrations

MODELS = ("modelprice", "pendingfiledeletion", "retainedtrace", "runcount")
RENAME = "\n".join(
    f"ALTER TABLE tracing_{model} RENAME TO trace_store_{model};" for model in MODELS
)
REVERSE = "\n".join(
    f"ALTER TABLE trace_store_{model} RENAME TO tracing_{model};" for model in MODELS
)


def move_content_types(apps, schema_editor):
    _move_content_types(apps, schema_editor, "tracing", "trace_store")


def return_content_types(apps, schema_editor):
    _move_content_types(apps, schema_editor, "trace_store", "tracing")


def _move_content_types(apps, schema_editor, old_label, new_label):
    content_types = apps.get_model("contenttypes", "ContentType").objects.using(
        schema_editor.connection.alias
    )
    content_types.filter(app_label=old_label, model__in=MODELS).update(app_label=new_label)


class Migration(migrations.Migration):
    dependencies = [
        ("contenttypes", "0002_remove_content_type_name"),
        ("tracing", "0001_initial"),
    ]

    operations = [
        migrations.RunPython(move_content_types, return_content_types),
        migrations.SeparateDatabaseAndState(
            database_operations=[migrations.RunSQL(RENAME, REVERSE)],
            state_operations=[
                migrations.DeleteModel(name="ModelPrice"),
                migrations.DeleteModel(name="PendingFileDeletion"),
                migrations.DeleteModel(name="RetainedTrace"),
                migrations.DeleteModel(name="RunCount"),
            ],
        ),
    ]
