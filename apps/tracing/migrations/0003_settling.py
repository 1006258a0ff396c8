"""What has come and is not settled yet: docs/adr/0019-tracing-whole.md."""

from django.db import migrations

UNSETTLED = """
-- One row a request, appended in its transaction; the settler takes rows away when it has done
-- what follows from them.
CREATE TABLE tracing_unsettled (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    workspace_id uuid NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    -- The runs that the request touched, column by column.
    run_ids uuid[] NOT NULL,
    project_ids uuid[] NOT NULL,
    trace_ids uuid[] NOT NULL,
    placed_at timestamptz[] NOT NULL,
    -- Why the settler gave up on it, and until when.
    failure text,
    retry_at timestamptz
);
CREATE INDEX tracing_unsettled_workspace ON tracing_unsettled (workspace_id, id);
-- Rows come and go by the thousand: vacuum by their number, not by a share of the table.
ALTER TABLE tracing_unsettled SET (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 5000
);
"""


class Migration(migrations.Migration):
    dependencies = [("tracing", "0002_runs")]

    operations = [migrations.RunSQL(UNSETTLED, "DROP TABLE tracing_unsettled;")]
