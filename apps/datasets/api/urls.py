"""API routes of datasets."""

from apps.datasets.api import (
    datasets,
    examples,
    files,
    lifecycle,
    platform,
    search,
    sharing,
    versions,
)

# Literal paths before parameters.
urlpatterns = [
    *files.routes,
    *lifecycle.routes,
    *datasets.routes,
    *versions.routes,
    *examples.routes,
    *platform.routes,
    *search.routes,
    *sharing.routes,
]
