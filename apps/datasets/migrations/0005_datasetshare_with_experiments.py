from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("datasets", "0004_fill_added_count"),
    ]

    operations = [
        migrations.AddField(
            model_name="datasetshare",
            name="with_experiments",
            field=models.BooleanField(db_default=False, default=False),
        ),
    ]
