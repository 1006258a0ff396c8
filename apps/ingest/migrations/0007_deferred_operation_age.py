"""An index by which deferred operations that are too old are found."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("ingest", "0006_require_is_update")]

    operations = [
        migrations.AddIndex(
            model_name="deferredoperation",
            index=models.Index(fields=["created_at"], name="deferred_operation_age"),
        ),
    ]
