"""API routes of ingest."""

from apps.ingest.api import ingest_log, otlp, views

urlpatterns = [*views.routes, *otlp.routes, *ingest_log.routes]
