"""A cron is deleted with its thread, whichever statement deletes the thread."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("agent_server", "0001_initial")]

    operations = [
        migrations.RunSQL(
            """
            ALTER TABLE agent_server_cron
            ADD CONSTRAINT cron_thread_cascade FOREIGN KEY (thread_id)
            REFERENCES agent_server_thread (id) ON DELETE CASCADE
            """,
            "ALTER TABLE agent_server_cron DROP CONSTRAINT cron_thread_cascade",
        ),
    ]
