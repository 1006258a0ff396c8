"""When the build of a revision started; unknown for earlier revisions."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("deployments", "0003_deployment_host_generation")]

    operations = [
        migrations.AddField(
            model_name="revision",
            name="started_at",
            field=models.DateTimeField(blank=True, null=True),
        ),
    ]
