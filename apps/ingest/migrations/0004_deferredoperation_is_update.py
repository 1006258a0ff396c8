"""Whether a deferred operation is an update, in a column; null until migration 0005."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("ingest", "0003_rename_otlp_trace_tables")]

    operations = [
        migrations.AddField(
            model_name="deferredoperation",
            name="is_update",
            field=models.BooleanField(null=True),
        ),
    ]
