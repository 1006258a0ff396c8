import apps.core.ids
import django.contrib.postgres.fields
import django.db.models.deletion
import django.db.models.manager
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("deployments", "0004_revision_started_at"),
        ("organizations", "0003_user_time_zone"),
    ]

    operations = [
        migrations.CreateModel(
            name="DeploymentWebhook",
            fields=[
                ("id", models.UUIDField(default=apps.core.ids.uuid7, editable=False, primary_key=True, serialize=False)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("url", models.TextField()),
                ("encrypted_headers", models.BinaryField()),
                ("secret", models.BinaryField()),
                ("updated_at", models.DateTimeField(auto_now=True)),
                ("events", django.contrib.postgres.fields.ArrayField(base_field=models.CharField(choices=[("revision.deployed", "Deployed"), ("revision.failed", "Failed"), ("revision.interrupted", "Interrupted")], max_length=30), default=list, size=None)),
                ("deployment", models.ForeignKey(db_index=False, null=True, on_delete=django.db.models.deletion.CASCADE, related_name="+", to="deployments.deployment")),
                ("workspace", models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name="+", to="organizations.workspace")),
            ],
            options={
                "base_manager_name": "unscoped",
                "indexes": [
                    models.Index(fields=["workspace", "created_at", "id"], name="deployment_webhooks"),
                    models.Index(fields=["deployment"], name="webhook_of_deployment"),
                ],
            },
            managers=[
                ("unscoped", django.db.models.manager.Manager()),
            ],
        ),
    ]
