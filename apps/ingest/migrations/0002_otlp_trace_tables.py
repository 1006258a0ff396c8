"""State of traces whose OTLP spans arrive one by one: apps/ingest/otlp/trace_assembly.py."""

from django.db import migrations

TABLES = """
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
    partition_time timestamptz NOT NULL,
    PRIMARY KEY (workspace_id, trace_id, awaits, run_id)
);
"""
DROP = "DROP TABLE tracing_otlporphan; DROP TABLE tracing_otlptrace;"


class Migration(migrations.Migration):
    dependencies = [("ingest", "0001_initial")]

    operations = [migrations.RunSQL(TABLES, DROP)]
