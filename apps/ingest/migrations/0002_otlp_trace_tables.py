"""State of traces whose OTLP spans arrive one by one: apps/ingest/otlp/trace_assembly.py."""

from django.db import migrations

TABLES = """
CREATE TABLE ingest_otlptrace (
    workspace_id uuid NOT NULL,
    trace_id uuid NOT NULL,
    -- The earliest and the latest start of its spans, which bound the partition times of its runs.
    first_at timestamptz NOT NULL,
    last_at timestamptz NOT NULL,
    ended_at timestamptz,
    root_span bytea,
    root_run_id uuid NOT NULL,
    root_segment text COLLATE "C",
    -- The placeholder of a root that was not received.
    placeholder_at timestamptz,
    placeholder_project_id uuid,
    closed_at timestamptz,
    updated_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (workspace_id, trace_id)
);
CREATE INDEX ingest_otlptrace_updated ON ingest_otlptrace (updated_at);
CREATE INDEX ingest_otlptrace_open ON ingest_otlptrace (updated_at)
    WHERE placeholder_at IS NOT NULL;
CREATE TABLE ingest_otlpwaitingspan (
    workspace_id uuid NOT NULL,
    trace_id uuid NOT NULL,
    -- The run id of the parent that was not received.
    awaits uuid NOT NULL,
    run_id uuid NOT NULL,
    partition_time timestamptz NOT NULL,
    PRIMARY KEY (workspace_id, trace_id, awaits, run_id)
);
"""
DROP = "DROP TABLE ingest_otlpwaitingspan; DROP TABLE ingest_otlptrace;"


class Migration(migrations.Migration):
    dependencies = [("ingest", "0001_initial")]

    operations = [migrations.RunSQL(TABLES, DROP)]
