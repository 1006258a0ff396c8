"""The tables of runs: partitioned by day, which Django's models cannot express. docs/adr/0005."""

from django.db import migrations

RUNS = """
CREATE TABLE trace_store_run (
    workspace_id uuid NOT NULL,
    id uuid NOT NULL,
    project_id uuid NOT NULL,
    -- The time in the run's own segment of its dotted order.
    partition_time timestamptz NOT NULL,
    trace_id uuid NOT NULL,
    parent_run_id uuid,
    -- Whether the run's beginning has come, not only an update of it.
    is_created boolean NOT NULL,
    reference_example_id uuid,
    start_time timestamptz,
    end_time timestamptz,
    first_token_time timestamptz,
    received_at timestamptz NOT NULL,
    prompt_tokens bigint,
    completion_tokens bigint,
    total_tokens bigint,
    prompt_cost numeric,
    completion_cost numeric,
    total_cost numeric,
    dotted_order text COLLATE "C" NOT NULL,
    name text,
    run_type text,
    model text,
    thread_key text,
    error_preview text,
    inputs_preview text,
    outputs_preview text,
    tags text[],
    metadata jsonb,
    usage_details jsonb,
    attachments jsonb,
    -- Tokens and costs of the runs below a run, where they are known and processed.
    sum_prompt_tokens bigint,
    sum_completion_tokens bigint,
    sum_total_tokens bigint,
    sum_prompt_cost numeric,
    sum_completion_cost numeric,
    sum_total_cost numeric,
    -- The price map entry that the run's cost was computed by.
    price_model_id uuid,
    -- The workspace first, so that the table can be distributed by it.
    PRIMARY KEY (workspace_id, id, project_id, partition_time)
) PARTITION BY RANGE (partition_time);

CREATE INDEX trace_store_run_newest ON trace_store_run (project_id, partition_time, id);
CREATE INDEX trace_store_run_newest_roots ON trace_store_run (project_id, partition_time, id)
    WHERE parent_run_id IS NULL;
CREATE INDEX trace_store_run_newest_errors ON trace_store_run (project_id, partition_time, id)
    WHERE error_preview IS NOT NULL;
CREATE INDEX trace_store_run_trace ON trace_store_run (workspace_id, trace_id);
-- Runs of experiments, few among all: asked for by their example alone.
CREATE INDEX trace_store_run_example ON trace_store_run (workspace_id, reference_example_id)
    WHERE reference_example_id IS NOT NULL;

CREATE TABLE trace_store_run_payload (
    workspace_id uuid NOT NULL,
    id uuid NOT NULL,
    project_id uuid NOT NULL,
    partition_time timestamptz NOT NULL,
    is_created boolean NOT NULL,
    inputs bytea,
    outputs bytea,
    extra bytea,
    events bytea,
    error bytea,
    serialized bytea,
    PRIMARY KEY (workspace_id, id, project_id, partition_time)
) PARTITION BY RANGE (partition_time);

-- The values come compressed: the server need not try again.
ALTER TABLE trace_store_run_payload
    ALTER inputs SET STORAGE EXTERNAL,
    ALTER outputs SET STORAGE EXTERNAL,
    ALTER extra SET STORAGE EXTERNAL,
    ALTER events SET STORAGE EXTERNAL,
    ALTER error SET STORAGE EXTERNAL,
    ALTER serialized SET STORAGE EXTERNAL;
"""

PENDING_RUNS = """
-- One row a request, appended in its transaction; the settler takes rows away when it has done
-- what follows from them.
CREATE TABLE trace_store_pending_run (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    workspace_id uuid NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    -- The runs that the request touched, column by column.
    run_ids uuid[] NOT NULL,
    project_ids uuid[] NOT NULL,
    trace_ids uuid[] NOT NULL,
    partition_time timestamptz[] NOT NULL,
    -- Why the settler gave up on it, and until when.
    failure text,
    retry_at timestamptz
);
CREATE INDEX trace_store_pending_run_workspace ON trace_store_pending_run (workspace_id, id);
-- Rows come and go by the thousand: vacuum by their number, not by a share of the table.
ALTER TABLE trace_store_pending_run SET (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 5000
);
"""

TERMS = """
-- What a run can be found by, as hashes: one row a settled run, in the same days as the runs.
CREATE TABLE trace_store_run_terms (
    workspace_id uuid NOT NULL,
    project_id uuid NOT NULL,
    partition_time timestamptz NOT NULL,
    id uuid NOT NULL,
    terms int4[] NOT NULL,
    -- Also the order of lists: frequent terms are found by walking it, rare ones by the index below.
    PRIMARY KEY (workspace_id, project_id, partition_time, id)
) PARTITION BY RANGE (partition_time);
CREATE INDEX trace_store_run_terms_terms ON trace_store_run_terms USING gin (terms);
-- Hashes do not compress.
ALTER TABLE trace_store_run_terms ALTER terms SET STORAGE EXTERNAL;
"""

DROP = """
DROP TABLE trace_store_run_terms;
DROP TABLE trace_store_pending_run;
DROP TABLE trace_store_run_payload;
DROP TABLE trace_store_run;
"""


def create_first_partitions(apps, schema_editor):
    from apps.trace_store.postgres import partitions

    partitions.create_partitions()


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.RunSQL(RUNS + PENDING_RUNS + TERMS, DROP),
        migrations.RunPython(create_first_partitions, migrations.RunPython.noop),
    ]
