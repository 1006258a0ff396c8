"""Statistics by quarter of an hour, hour and day, and threads: docs/adr/0019."""

from django.db import migrations

ROLLUPS = """
-- What is known of a stretch of time of a project: whether its rows still say the truth.
CREATE TABLE tracing_rollupspan (
    workspace_id uuid NOT NULL,
    project_id uuid NOT NULL,
    -- 0 a quarter of an hour, 1 an hour, 2 a day.
    span smallint NOT NULL,
    begins_at timestamptz NOT NULL,
    -- Counted up by every change of a run in it; `made` is the count that its rows stand for.
    touched bigint NOT NULL,
    made bigint NOT NULL,
    touched_at timestamptz NOT NULL,
    made_at timestamptz,
    -- False when it has too many names for rows of their own.
    has_names boolean NOT NULL DEFAULT true,
    PRIMARY KEY (workspace_id, project_id, span, begins_at)
) WITH (fillfactor = 70);
CREATE INDEX tracing_rollupspan_dirty ON tracing_rollupspan (touched_at) WHERE touched <> made;

CREATE TABLE tracing_rollup (
    workspace_id uuid NOT NULL,
    project_id uuid NOT NULL,
    span smallint NOT NULL,
    begins_at timestamptz NOT NULL,
    -- 0 all runs of a scope in one row, 1 by type and status, 2 by name and model too.
    cut smallint NOT NULL,
    -- -1 roots with the tokens of their traces; 0 roots, 1 runs below a root, 2 deeper ones, each
    -- with the tokens that it told itself.
    scope smallint NOT NULL,
    run_type text NOT NULL,
    status text NOT NULL,
    name text NOT NULL,
    model text NOT NULL,
    runs bigint NOT NULL,
    errors bigint NOT NULL,
    pending bigint NOT NULL,
    model_calls bigint NOT NULL,
    streamed bigint NOT NULL,
    last_start timestamptz,
    -- Distributions: store/metrics.py.
    latency_seconds bytea,
    first_token_seconds bytea,
    prompt_tokens bytea,
    completion_tokens bytea,
    total_tokens bytea,
    prompt_cost bytea,
    completion_cost bytea,
    total_cost bytea,
    details jsonb
);
CREATE INDEX tracing_rollup_of_span
    ON tracing_rollup (workspace_id, project_id, span, begins_at, cut);

-- Runs whose dotted order and start lie in different quarters: rows leave them out.
CREATE INDEX tracing_run_astray ON tracing_run (project_id, start_time)
    WHERE date_bin('15 minutes', start_time, '2000-01-01 00:00:00+00')
       <> date_bin('15 minutes', placed_at, '2000-01-01 00:00:00+00');

-- A conversation with what orders it among others: store/threads.py.
CREATE TABLE tracing_thread (
    workspace_id uuid NOT NULL,
    project_id uuid NOT NULL,
    thread_key text NOT NULL,
    first_start timestamptz NOT NULL,
    last_start timestamptz NOT NULL,
    first_trace_id uuid NOT NULL,
    last_trace_id uuid NOT NULL
);
-- A key may be longer than what an index holds.
CREATE UNIQUE INDEX tracing_thread_once
    ON tracing_thread (workspace_id, project_id, md5(thread_key));
CREATE INDEX tracing_thread_newest ON tracing_thread (project_id, last_start);
CREATE INDEX tracing_thread_first ON tracing_thread (first_trace_id);
CREATE INDEX tracing_thread_last ON tracing_thread (last_trace_id);
CREATE INDEX tracing_run_turns ON tracing_run (project_id, md5(thread_key), placed_at)
    WHERE thread_key IS NOT NULL AND parent_run_id IS NULL;

-- Over runs in the order of a tree: the model call that speaks for this run, itself or above it;
-- '' when there is none.
CREATE FUNCTION tracing_speaker(above text, dotted_order text, is_model_call boolean)
RETURNS text LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    IF above <> '' AND starts_with(dotted_order, above || '.') THEN RETURN above; END IF;
    IF is_model_call THEN RETURN dotted_order; END IF;
    RETURN '';
END $$;
CREATE AGGREGATE tracing_speaker(text, boolean) (
    sfunc = tracing_speaker, stype = text, initcond = ''
);
"""

DROP = """
DROP AGGREGATE tracing_speaker(text, boolean);
DROP FUNCTION tracing_speaker(text, text, boolean);
DROP INDEX tracing_run_turns;
DROP TABLE tracing_thread;
DROP INDEX tracing_run_astray;
DROP TABLE tracing_rollup;
DROP TABLE tracing_rollupspan;
"""


class Migration(migrations.Migration):
    dependencies = [("trace_store", "0001_initial")]

    operations = [migrations.RunSQL(ROLLUPS, DROP)]
