from django.db import migrations


class Migration(migrations.Migration):
    """Days are summed over all workspaces, which no index of the ledger itself is for."""

    dependencies = [("usage", "0001_initial"), ("tracing", "0001_initial")]

    operations = [
        migrations.RunSQL(
            "CREATE INDEX ingest_count_by_hour ON tracing_ingestcount (hour)",
            "DROP INDEX ingest_count_by_hour",
        )
    ]
