"""Fill `resumable` from the request; the clients of these runs may still resume their streams."""

from django.db import migrations

FILL = """
UPDATE agent_server_agentrun SET resumable = true
WHERE NOT resumable AND kwargs @> '{"resumable": true}'
"""


class Migration(migrations.Migration):
    dependencies = [("agent_server", "0003_agentrun_resumable")]

    operations = [migrations.RunSQL(FILL, migrations.RunSQL.noop)]
