"""A cron goes with its thread, whichever statement deletes that."""

from django.db import migrations


class Migration(migrations.Migration):

    dependencies = [
        ('agent_server', '0002_whole'),
    ]

    operations = [
        migrations.RunSQL(
            """
            ALTER TABLE agent_server_cron
            ADD CONSTRAINT cron_goes_with_thread FOREIGN KEY (thread_id)
            REFERENCES agent_server_thread (id) ON DELETE CASCADE
            """,
            "ALTER TABLE agent_server_cron DROP CONSTRAINT cron_goes_with_thread",
        ),
    ]
