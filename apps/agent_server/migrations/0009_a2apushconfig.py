"""Addresses that A2A clients want to be notified at."""

import apps.core.ids
import django.db.models.deletion
import django.db.models.manager
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("agent_server", "0008_a2atask"),
        ("organizations", "0002_owner_required_trigger"),
    ]

    operations = [
        migrations.CreateModel(
            name="A2APushConfig",
            fields=[
                ("id", models.UUIDField(default=apps.core.ids.uuid7, editable=False, primary_key=True, serialize=False)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("config_id", models.CharField(max_length=255)),
                ("url", models.TextField()),
                ("encrypted_secrets", models.BinaryField()),
                ("is_legacy", models.BooleanField(default=False)),
                ("task", models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name="push_configs", to="agent_server.a2atask")),
                ("workspace", models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name="+", to="organizations.workspace")),
            ],
            options={
                "base_manager_name": "unscoped",
                "indexes": [models.Index(fields=["workspace"], name="a2a_push_workspace")],
                "constraints": [models.UniqueConstraint(fields=("task", "config_id"), name="a2a_push_config_once")],
            },
            managers=[
                ("unscoped", django.db.models.manager.Manager()),
            ],
        ),
    ]
