"""The status of a stopped deployment; the schema is unchanged."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("deployments", "0001_initial")]

    operations = [
        migrations.AlterField(
            model_name="deployment",
            name="status",
            field=models.CharField(
                choices=[
                    ("AWAITING_DATABASE", "Awaiting Database"),
                    ("READY", "Ready"),
                    ("UNUSED", "Stopped"),
                    ("AWAITING_DELETE", "Awaiting Delete"),
                ],
                default="AWAITING_DATABASE",
                max_length=20,
            ),
        ),
    ]
