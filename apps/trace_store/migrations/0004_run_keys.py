"""The key of each run without its time, so that a run id is one run per project: docs/adr/0005."""

from django.db import migrations

RUN_KEYS = """
CREATE TABLE trace_store_run_key (
    workspace_id uuid NOT NULL,
    id uuid NOT NULL,
    project_id uuid NOT NULL,
    -- Where the run is stored in the partitioned tables.
    partition_time timestamptz NOT NULL,
    PRIMARY KEY (workspace_id, id, project_id)
);
INSERT INTO trace_store_run_key
    SELECT workspace_id, id, project_id, partition_time FROM trace_store_run
    ORDER BY received_at DESC
    ON CONFLICT DO NOTHING;
"""


class Migration(migrations.Migration):
    dependencies = [("trace_store", "0003_take_over_models")]

    operations = [migrations.RunSQL(RUN_KEYS, "DROP TABLE trace_store_run_key")]
