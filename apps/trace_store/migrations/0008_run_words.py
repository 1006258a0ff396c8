"""The words of runs, which are indexed for beginnings of any length: docs/adr/0019."""

from django.db import migrations

WORDS = """
ALTER TABLE trace_store_run_terms ADD COLUMN words tsvector;
-- Compressed if the row is long, but not moved out of it: out of line they take more space.
ALTER TABLE trace_store_run_terms ALTER words SET STORAGE MAIN;
CREATE INDEX trace_store_run_terms_words ON trace_store_run_terms USING gin (words);
"""
BACKLOG = """
-- An earlier version hashed the words of these runs into their terms.
INSERT INTO trace_store_term_backlog
    SELECT workspace_id, project_id, max(partition_time), 'ffffffff-ffff-ffff-ffff-ffffffffffff'
    FROM trace_store_run_terms GROUP BY workspace_id, project_id
    ON CONFLICT (workspace_id, project_id)
    DO UPDATE SET partition_time = excluded.partition_time, id = excluded.id;
"""
UNDO = "ALTER TABLE trace_store_run_terms DROP COLUMN words"


class Migration(migrations.Migration):
    dependencies = [("trace_store", "0007_run_status_counts")]

    operations = [migrations.RunSQL(WORDS + BACKLOG, UNDO)]
