"""Store the JSON of clients and graphs as `json`, which keeps its text, and no longer as `jsonb`.

One statement per table, because each rewrites the table. `jsonb` rejects U+0000, so the reverse
migration replaces it by U+FFFD.
"""

from django.db import migrations

from apps.core.verbatim_json import VerbatimJSONField, searchable

COLUMNS = {
    "agent_server_agentrun": ("kwargs",),
    "agent_server_cron": ("payload",),
    "agent_server_thread": ("values", "interrupts", "state"),
    "agent_server_webhookdelivery": ("payload",),
}


def convert(table, columns):
    forwards = ", ".join(f'ALTER "{name}" TYPE json USING "{name}"::json' for name in columns)
    backwards = ", ".join(
        f'ALTER "{name}" TYPE jsonb USING {searchable(chr(34) + name + chr(34))}'
        for name in columns
    )
    return migrations.RunSQL(f"ALTER TABLE {table} {forwards}", f"ALTER TABLE {table} {backwards}")


class Migration(migrations.Migration):
    dependencies = [("agent_server", "0004_fill_resumable")]

    operations = [
        migrations.SeparateDatabaseAndState(
            database_operations=[convert(table, columns) for table, columns in COLUMNS.items()],
            state_operations=[
                migrations.AlterField(
                    model_name="agentrun",
                    name="kwargs",
                    field=VerbatimJSONField(default=dict),
                ),
                migrations.AlterField(
                    model_name="cron",
                    name="payload",
                    field=VerbatimJSONField(default=dict),
                ),
                migrations.AlterField(
                    model_name="thread",
                    name="values",
                    field=VerbatimJSONField(blank=True, null=True),
                ),
                migrations.AlterField(
                    model_name="thread",
                    name="interrupts",
                    field=VerbatimJSONField(blank=True, null=True),
                ),
                migrations.AlterField(
                    model_name="thread",
                    name="state",
                    field=VerbatimJSONField(blank=True, null=True),
                ),
                migrations.AlterField(
                    model_name="webhookdelivery",
                    name="payload",
                    field=VerbatimJSONField(blank=True, null=True),
                ),
            ],
        ),
    ]
