"""The tables of OTLP traces get the prefix of the app that writes them."""

from django.db import migrations

RENAME = """
ALTER TABLE tracing_otlptrace RENAME TO ingest_otlptrace;
ALTER TABLE ingest_otlptrace RENAME COLUMN stand_in_at TO placeholder_at;
ALTER TABLE ingest_otlptrace RENAME COLUMN stand_in_project_id TO placeholder_project_id;
ALTER INDEX tracing_otlptrace_pkey RENAME TO ingest_otlptrace_pkey;
ALTER INDEX tracing_otlptrace_updated RENAME TO ingest_otlptrace_updated;
ALTER INDEX tracing_otlptrace_open RENAME TO ingest_otlptrace_open;
ALTER TABLE tracing_otlporphan RENAME TO ingest_otlpwaitingspan;
ALTER INDEX tracing_otlporphan_pkey RENAME TO ingest_otlpwaitingspan_pkey;
"""
REVERSE = """
ALTER INDEX ingest_otlpwaitingspan_pkey RENAME TO tracing_otlporphan_pkey;
ALTER TABLE ingest_otlpwaitingspan RENAME TO tracing_otlporphan;
ALTER INDEX ingest_otlptrace_open RENAME TO tracing_otlptrace_open;
ALTER INDEX ingest_otlptrace_updated RENAME TO tracing_otlptrace_updated;
ALTER INDEX ingest_otlptrace_pkey RENAME TO tracing_otlptrace_pkey;
ALTER TABLE ingest_otlptrace RENAME COLUMN placeholder_project_id TO stand_in_project_id;
ALTER TABLE ingest_otlptrace RENAME COLUMN placeholder_at TO stand_in_at;
ALTER TABLE ingest_otlptrace RENAME TO tracing_otlptrace;
"""


class Migration(migrations.Migration):
    dependencies = [("ingest", "0002_otlp_trace_tables")]

    operations = [migrations.RunSQL(RENAME, REVERSE)]
