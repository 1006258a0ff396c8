"""Indexes of a deployment's queue and of ended runs by age.

Not built concurrently: migration 0005 has just rewritten the table under a stronger lock.
"""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("agent_server", "0005_verbatim_json")]

    operations = [
        migrations.AddIndex(
            model_name="agentrun",
            index=models.Index(
                condition=models.Q(status="pending"),
                fields=["workspace", "deployment"],
                name="agent_run_queued",
            ),
        ),
        migrations.AddIndex(
            model_name="agentrun",
            index=models.Index(
                condition=models.Q(ended_at__isnull=False),
                fields=["ended_at"],
                name="agent_run_ended",
            ),
        ),
    ]
