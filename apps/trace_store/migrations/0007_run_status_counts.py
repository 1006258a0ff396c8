"""Counts of interrupted and cancelled runs, which rollups counted as errors."""

from django.db import migrations

ADD = """
ALTER TABLE trace_store_rollup
    ADD COLUMN interrupted bigint NOT NULL DEFAULT 0,
    ADD COLUMN cancelled bigint NOT NULL DEFAULT 0;
ALTER TABLE trace_store_rollup
    ALTER COLUMN interrupted DROP DEFAULT,
    ALTER COLUMN cancelled DROP DEFAULT;

-- Intervals with errors are built again.
UPDATE trace_store_rollup_interval AS i SET change_count = change_count + 1
WHERE EXISTS (
    SELECT FROM trace_store_rollup AS r
    WHERE r.workspace_id = i.workspace_id AND r.project_id = i.project_id
      AND r.resolution = i.resolution AND r.begins_at = i.begins_at
      AND r.granularity = 0 AND r.errors > 0
);
"""

REMOVE = "ALTER TABLE trace_store_rollup DROP COLUMN interrupted, DROP COLUMN cancelled;"


class Migration(migrations.Migration):
    dependencies = [("trace_store", "0006_experiment_runs")]

    operations = [migrations.RunSQL(ADD, REMOVE)]
