"""The tables of runs: partitioned by day, which Django's models cannot say. docs/adr/0005."""

from django.db import migrations

RUNS = """
CREATE TABLE tracing_run (
    workspace_id uuid NOT NULL,
    id uuid NOT NULL,
    project_id uuid NOT NULL,
    -- The time in the run's own segment of its dotted order.
    placed_at timestamptz NOT NULL,
    trace_id uuid NOT NULL,
    parent_run_id uuid,
    -- Whether the run's beginning has come, not only an update of it.
    is_begun boolean NOT NULL,
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
    -- The workspace first, so that the table can be distributed by it.
    PRIMARY KEY (workspace_id, id, project_id, placed_at)
) PARTITION BY RANGE (placed_at);

CREATE INDEX tracing_run_newest ON tracing_run (project_id, placed_at, id);
CREATE INDEX tracing_run_newest_roots ON tracing_run (project_id, placed_at, id)
    WHERE parent_run_id IS NULL;
CREATE INDEX tracing_run_newest_errors ON tracing_run (project_id, placed_at, id)
    WHERE error_preview IS NOT NULL;
CREATE INDEX tracing_run_trace ON tracing_run (workspace_id, trace_id);

CREATE TABLE tracing_runpayload (
    workspace_id uuid NOT NULL,
    id uuid NOT NULL,
    project_id uuid NOT NULL,
    placed_at timestamptz NOT NULL,
    is_begun boolean NOT NULL,
    inputs bytea,
    outputs bytea,
    extra bytea,
    events bytea,
    error bytea,
    serialized bytea,
    PRIMARY KEY (workspace_id, id, project_id, placed_at)
) PARTITION BY RANGE (placed_at);

-- The values come compressed: the server need not try again.
ALTER TABLE tracing_runpayload
    ALTER inputs SET STORAGE EXTERNAL,
    ALTER outputs SET STORAGE EXTERNAL,
    ALTER extra SET STORAGE EXTERNAL,
    ALTER events SET STORAGE EXTERNAL,
    ALTER error SET STORAGE EXTERNAL,
    ALTER serialized SET STORAGE EXTERNAL;
"""


def first_partitions(apps, schema_editor):
    from apps.trace_store.store import partitions

    partitions.make_ahead()


class Migration(migrations.Migration):
    dependencies = [("tracing", "0001_initial")]

    operations = [
        migrations.RunSQL(RUNS, "DROP TABLE tracing_runpayload; DROP TABLE tracing_run;"),
        migrations.RunPython(first_partitions, migrations.RunPython.noop),
    ]
