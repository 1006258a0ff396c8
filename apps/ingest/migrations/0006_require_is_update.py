"""Each deferred operation says whether it is an update."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("ingest", "0005_fill_is_update")]

    operations = [
        migrations.AlterField(
            model_name="deferredoperation",
            name="is_update",
            field=models.BooleanField(),
        ),
    ]
