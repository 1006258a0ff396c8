from django.urls import path

from apps.monitoring import views
from apps.monitoring.api import charts, organization_charts

DASHBOARDS = "o/<uuid:workspace_id>/dashboards"
DASHBOARD = f"{DASHBOARDS}/<uuid:section_id>"
urlpatterns = [
    *charts.routes,
    *organization_charts.routes,
    path(
        "o/<uuid:workspace_id>/projects/p/<uuid:project_id>/monitoring",
        views.project_monitoring,
        name="project-monitoring",
    ),
    path(DASHBOARDS, views.dashboard_list, name="dashboard-list"),
    path(
        f"{DASHBOARDS}/for-project/<uuid:project_id>",
        views.copy_project_dashboard,
        name="dashboard-for-project",
    ),
    path(DASHBOARD, views.dashboard_detail, name="dashboard-detail"),
    path(f"{DASHBOARD}/change", views.dashboard_change, name="dashboard-change"),
    path(f"{DASHBOARD}/arrange", views.dashboard_arrange, name="dashboard-arrange"),
    path(f"{DASHBOARD}/charts/new", views.chart_new, name="chart-new"),
    path(f"{DASHBOARD}/charts/<uuid:chart_id>", views.chart_edit, name="chart-edit"),
]
