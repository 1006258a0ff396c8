"""Routes of monitoring in the platform API."""

from apps.monitoring.api import charts, organization_charts

urlpatterns = [*charts.routes, *organization_charts.routes]
