"""An index of the runs of experiments by example: docs/adr/0005."""

from django.db import migrations

EXPERIMENT_RUNS = """
-- The examples of an experiment, and its runs of some examples. The table of runs need not be read
-- for the first, because the workspace is included.
CREATE INDEX trace_store_run_experiment
    ON trace_store_run (project_id, reference_example_id, partition_time, id)
    INCLUDE (workspace_id)
    WHERE reference_example_id IS NOT NULL AND parent_run_id IS NULL;
"""


class Migration(migrations.Migration):
    dependencies = [("trace_store", "0005_term_backlog")]

    operations = [
        migrations.RunSQL(EXPERIMENT_RUNS, "DROP INDEX trace_store_run_experiment"),
    ]
