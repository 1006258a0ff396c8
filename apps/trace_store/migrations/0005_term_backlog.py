"""Projects whose runs were indexed before beginnings of words were: docs/adr/0019."""

from django.db import migrations

TERM_BACKLOG = """
CREATE TABLE trace_store_term_backlog (
    workspace_id uuid NOT NULL,
    project_id uuid NOT NULL,
    -- The runs up to this key are indexed again, the newest first.
    partition_time timestamptz NOT NULL,
    id uuid NOT NULL,
    PRIMARY KEY (workspace_id, project_id)
);
INSERT INTO trace_store_term_backlog
    SELECT workspace_id, project_id, max(partition_time), 'ffffffff-ffff-ffff-ffff-ffffffffffff'
    FROM trace_store_run_terms GROUP BY workspace_id, project_id;
"""


class Migration(migrations.Migration):
    dependencies = [("trace_store", "0004_run_keys")]

    operations = [migrations.RunSQL(TERM_BACKLOG, "DROP TABLE trace_store_term_backlog")]
