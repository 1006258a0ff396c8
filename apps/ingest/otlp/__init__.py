"""OpenTelemetry ingest: decoding (`encoding`), `run_mapping`, and assembly (`trace_assembly`)."""
