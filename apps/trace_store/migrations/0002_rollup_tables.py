"""Statistics by quarter of an hour, hour and day, and threads: docs/adr/0019."""

from django.db import migrations

ROLLUPS = """
-- What is known of a interval of time of a project: whether its rows still say the truth.
CREATE TABLE trace_store_rollup_interval (
    workspace_id uuid NOT NULL,
    project_id uuid NOT NULL,
    -- 0 a quarter of an hour, 1 an hour, 2 a day.
    resolution smallint NOT NULL,
    begins_at timestamptz NOT NULL,
    -- Counted up by every change of a run in it; `made` is the count that its rows stand for.
    change_count bigint NOT NULL,
    built_count bigint NOT NULL,
    changed_at timestamptz NOT NULL,
    built_at timestamptz,
    -- False when it has too many names for rows of their own.
    has_names boolean NOT NULL DEFAULT true,
    PRIMARY KEY (workspace_id, project_id, resolution, begins_at)
) WITH (fillfactor = 70);
CREATE INDEX trace_store_rollup_interval_dirty ON trace_store_rollup_interval (changed_at) WHERE change_count <> built_count;

CREATE TABLE trace_store_rollup (
    workspace_id uuid NOT NULL,
    project_id uuid NOT NULL,
    resolution smallint NOT NULL,
    begins_at timestamptz NOT NULL,
    -- 0 all runs of a scope in one row, 1 by type and status, 2 by name and model too.
    granularity smallint NOT NULL,
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
CREATE INDEX trace_store_rollup_of_interval
    ON trace_store_rollup (workspace_id, project_id, resolution, begins_at, granularity);

-- Runs whose dotted order and start lie in different quarters: rows leave them out.
CREATE INDEX trace_store_run_misplaced ON trace_store_run (project_id, start_time)
    WHERE date_bin('15 minutes', start_time, '2000-01-01 00:00:00+00')
       <> date_bin('15 minutes', partition_time, '2000-01-01 00:00:00+00');

-- A conversation with what orders it among others: store/threads.py.
CREATE TABLE trace_store_thread (
    workspace_id uuid NOT NULL,
    project_id uuid NOT NULL,
    thread_key text NOT NULL,
    first_start timestamptz NOT NULL,
    last_start timestamptz NOT NULL,
    first_trace_id uuid NOT NULL,
    last_trace_id uuid NOT NULL
);
-- A key may be longer than what an index holds.
CREATE UNIQUE INDEX trace_store_thread_once
    ON trace_store_thread (workspace_id, project_id, md5(thread_key));
CREATE INDEX trace_store_thread_newest ON trace_store_thread (project_id, last_start);
CREATE INDEX trace_store_thread_first ON trace_store_thread (first_trace_id);
CREATE INDEX trace_store_thread_last ON trace_store_thread (last_trace_id);
CREATE INDEX trace_store_run_turns ON trace_store_run (project_id, md5(thread_key), partition_time)
    WHERE thread_key IS NOT NULL AND parent_run_id IS NULL;

-- Over runs in the order of a tree: the model call that speaks for this run, itself or above it;
-- '' when there is none.
CREATE FUNCTION trace_store_usage_source(above text, dotted_order text, is_model_call boolean)
RETURNS text LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    IF above <> '' AND starts_with(dotted_order, above || '.') THEN RETURN above; END IF;
    IF is_model_call THEN RETURN dotted_order; END IF;
    RETURN '';
END $$;
CREATE AGGREGATE trace_store_usage_source(text, boolean) (
    sfunc = trace_store_usage_source, stype = text, initcond = ''
);
"""

DROP = """
DROP AGGREGATE trace_store_usage_source(text, boolean);
DROP FUNCTION trace_store_usage_source(text, text, boolean);
DROP INDEX trace_store_run_turns;
DROP TABLE trace_store_thread;
DROP INDEX trace_store_run_misplaced;
DROP TABLE trace_store_rollup;
DROP TABLE trace_store_rollup_interval;
"""


class Migration(migrations.Migration):
    dependencies = [("trace_store", "0001_initial")]

    operations = [migrations.RunSQL(ROLLUPS, DROP)]
