from tests.ingest.otlp.conftest import exporter
from tests.tracing.conftest import api, make_api, objects, other_workspace, page, project

__all__ = [
    "api",
    "exporter",
    "make_api",
    "objects",
    "other_workspace",
    "page",
    "project",
]
