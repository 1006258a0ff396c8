"""The platform API's addresses of monitoring."""

from apps.monitoring.api import charts

urlpatterns = [*charts.routes]
