"""A counter by which a deployment's graph hosts are replaced."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("deployments", "0002_deployment_status_stopped")]

    operations = [
        migrations.AddField(
            model_name="deployment",
            name="host_generation",
            field=models.PositiveIntegerField(default=0),
        ),
    ]
