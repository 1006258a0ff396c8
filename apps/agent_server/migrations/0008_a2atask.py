"""Tasks of A2A clients."""

import apps.core.ids
import apps.core.verbatim_json
import django.db.models.deletion
import django.db.models.functions.datetime
import django.db.models.manager
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("agent_server", "0007_unreportedattempt"),
        ("deployments", "0001_initial"),
        ("organizations", "0002_owner_required_trigger"),
    ]

    operations = [
        migrations.CreateModel(
            name="A2ATask",
            fields=[
                ("id", models.UUIDField(default=apps.core.ids.uuid7, editable=False, primary_key=True, serialize=False)),
                ("assistant_id", models.UUIDField()),
                ("context_id", models.CharField(max_length=255)),
                ("run_id", models.UUIDField(unique=True)),
                ("state", models.CharField(blank=True, choices=[("submitted", "Submitted"), ("working", "Working"), ("input-required", "Input Required"), ("completed", "Completed"), ("failed", "Failed"), ("canceled", "Canceled")], max_length=20)),
                ("history", apps.core.verbatim_json.VerbatimJSONField(default=list)),
                ("output", apps.core.verbatim_json.VerbatimJSONField(blank=True, null=True)),
                ("interrupts", apps.core.verbatim_json.VerbatimJSONField(blank=True, null=True)),
                ("error", models.JSONField(blank=True, null=True)),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("updated_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("deployment", models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name="a2a_tasks", to="deployments.deployment")),
                ("thread", models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name="a2a_tasks", to="agent_server.thread")),
                ("workspace", models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name="+", to="organizations.workspace")),
            ],
            options={
                "base_manager_name": "unscoped",
                "indexes": [models.Index(fields=["workspace", "deployment", "assistant_id", "-updated_at"], name="a2a_task_newest")],
            },
            managers=[
                ("unscoped", django.db.models.manager.Manager()),
            ],
        ),
    ]
