"""Whether a run's stream can be resumed, in a column; migration 0004 fills it."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("agent_server", "0002_cron_thread_cascade")]

    operations = [
        migrations.AddField(
            model_name="agentrun",
            name="resumable",
            field=models.BooleanField(db_default=False, default=False),
        ),
    ]
