"""Keys that were made for one workspace reach that; those made for none reach all."""

from django.db import migrations

CHOSEN = """
INSERT INTO api_keys_apikey_workspaces (apikey_id, workspace_id)
SELECT id, workspace_id FROM api_keys_apikey WHERE workspace_id IS NOT NULL
ON CONFLICT DO NOTHING
"""
WIDE = "UPDATE api_keys_apikey SET is_organization_wide = true WHERE workspace_id IS NULL"


class Migration(migrations.Migration):
    dependencies = [("api_keys", "0002_kinds_and_reach")]

    operations = [
        migrations.RunSQL(CHOSEN, "DELETE FROM api_keys_apikey_workspaces"),
        migrations.RunSQL(WIDE, migrations.RunSQL.noop),
    ]
