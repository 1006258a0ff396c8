"""The platform API's addresses of monitoring."""

from apps.monitoring.api import charts, organization_charts

urlpatterns = [*charts.routes, *organization_charts.routes]
