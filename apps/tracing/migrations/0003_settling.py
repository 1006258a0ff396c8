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


TERMS = """
-- What a run can be found by, as hashes: one row a settled run, in the same days as the runs.
CREATE TABLE tracing_runterms (
    workspace_id uuid NOT NULL,
    project_id uuid NOT NULL,
    placed_at timestamptz NOT NULL,
    id uuid NOT NULL,
    terms int4[] NOT NULL,
    -- Also the order of lists: frequent terms are found by walking it, rare ones by the index below.
    PRIMARY KEY (workspace_id, project_id, placed_at, id)
) PARTITION BY RANGE (placed_at);
CREATE INDEX tracing_runterms_terms ON tracing_runterms USING gin (terms);
-- Hashes do not compress.
ALTER TABLE tracing_runterms ALTER terms SET STORAGE EXTERNAL;
"""

SUMS = """
-- Tokens and costs of the runs below a run, where they are known and settled.
ALTER TABLE tracing_run
    ADD sum_prompt_tokens bigint,
    ADD sum_completion_tokens bigint,
    ADD sum_total_tokens bigint,
    ADD sum_prompt_cost numeric,
    ADD sum_completion_cost numeric,
    ADD sum_total_cost numeric;
"""

NO_SUMS = """
ALTER TABLE tracing_run
    DROP sum_prompt_tokens,
    DROP sum_completion_tokens,
    DROP sum_total_tokens,
    DROP sum_prompt_cost,
    DROP sum_completion_cost,
    DROP sum_total_cost;
"""

EXAMPLES = """
-- Runs of experiments, few among all: asked for by their example alone.
CREATE INDEX tracing_run_example ON tracing_run (workspace_id, reference_example_id)
    WHERE reference_example_id IS NOT NULL;
"""

EVERYTHING = """
-- What was stored before there was a settler.
INSERT INTO tracing_unsettled (workspace_id, run_ids, project_ids, trace_ids, placed_at)
SELECT workspace_id, array_agg(id), array_agg(project_id), array_agg(trace_id), array_agg(placed_at)
FROM (
    SELECT workspace_id, id, project_id, trace_id, placed_at,
           row_number() OVER (PARTITION BY workspace_id ORDER BY placed_at) / 500 AS part
    FROM tracing_run
) r
GROUP BY workspace_id, part ORDER BY part;
"""

# Owner: otlp. What is known of traces whose spans come one by one, see apps/ingest/otlp/placing.py,
# and which entry of the price map a run's cost was computed by.
SPANS = """
CREATE TABLE tracing_otlptrace (
    workspace_id uuid NOT NULL,
    trace_id uuid NOT NULL,
    -- The earliest and the latest start of its spans: where its runs lie.
    first_at timestamptz NOT NULL,
    last_at timestamptz NOT NULL,
    ended_at timestamptz,
    root_span bytea,
    root_run_id uuid NOT NULL,
    root_segment text COLLATE "C",
    -- The run in the place of a root that has not come.
    stand_in_at timestamptz,
    stand_in_project_id uuid,
    closed_at timestamptz,
    updated_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (workspace_id, trace_id)
);
CREATE INDEX tracing_otlptrace_updated ON tracing_otlptrace (updated_at);
CREATE INDEX tracing_otlptrace_open ON tracing_otlptrace (updated_at)
    WHERE stand_in_at IS NOT NULL;
CREATE TABLE tracing_otlporphan (
    workspace_id uuid NOT NULL,
    trace_id uuid NOT NULL,
    -- The run of the parent that has not come.
    awaits uuid NOT NULL,
    run_id uuid NOT NULL,
    placed_at timestamptz NOT NULL,
    PRIMARY KEY (workspace_id, trace_id, awaits, run_id)
);
"""
NO_SPANS = "DROP TABLE tracing_otlporphan; DROP TABLE tracing_otlptrace;"
PRICE_MODEL = "ALTER TABLE tracing_run ADD COLUMN price_model_id uuid;"
NO_PRICE_MODEL = "ALTER TABLE tracing_run DROP COLUMN price_model_id;"


def days_of_terms(apps, schema_editor):
    from apps.trace_store.store import partitions

    partitions.make_missing("tracing_runterms")


class Migration(migrations.Migration):
    dependencies = [("tracing", "0002_runs")]

    operations = [
        migrations.RunSQL(UNSETTLED, "DROP TABLE tracing_unsettled;"),
        migrations.RunSQL(TERMS, "DROP TABLE tracing_runterms;"),
        migrations.RunPython(days_of_terms, migrations.RunPython.noop),
        migrations.RunSQL(SUMS, NO_SUMS),
        migrations.RunSQL(EXAMPLES, "DROP INDEX tracing_run_example;"),
        migrations.RunSQL(EVERYTHING, migrations.RunSQL.noop),
        migrations.RunSQL(SPANS, NO_SPANS),
        migrations.RunSQL(PRICE_MODEL, NO_PRICE_MODEL),
    ]
