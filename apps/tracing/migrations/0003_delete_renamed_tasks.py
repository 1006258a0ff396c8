"""Delete the schedule entries of tasks that moved to `trace_store`.

The scheduler adds entries and deletes none, so it would send the old names for ever. It adds the
entries of the version that runs, so there is nothing to restore.
"""

from django.db import migrations

TASKS = (
    "tracing.build_rollups",
    "tracing.compact_run_counts",
    "tracing.ensure_partitions",
    "tracing.process_pending_runs",
)


def delete_entries(apps, schema_editor):
    tasks = apps.get_model("django_celery_beat", "PeriodicTask").objects.using(
        schema_editor.connection.alias
    )
    tasks.filter(task__in=TASKS).delete()


class Migration(migrations.Migration):
    dependencies = [
        ("django_celery_beat", "0019_alter_periodictasks_options"),
        ("tracing", "0002_move_models_to_trace_store"),
    ]

    operations = [migrations.RunPython(delete_entries, migrations.RunPython.noop)]
