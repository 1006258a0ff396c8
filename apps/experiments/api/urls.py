"""API routes of experiments."""

from apps.experiments.api import comparisons, groups, results, sharing, uploads

urlpatterns = [
    *uploads.routes,
    *comparisons.routes,
    *results.routes,
    *groups.routes,
    *sharing.routes,
]
