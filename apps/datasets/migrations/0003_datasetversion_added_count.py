from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("datasets", "0002_example_indexes"),
    ]

    operations = [
        migrations.AddField(
            model_name="datasetversion",
            name="added_count",
            field=models.PositiveIntegerField(db_default=0, default=0),
        ),
    ]
