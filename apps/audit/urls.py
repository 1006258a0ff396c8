from django.urls import path

from apps.audit import views
from apps.audit.api.views import routes

SETTINGS = "o/<uuid:workspace_id>/settings"
urlpatterns = [
    *routes,
    path(f"{SETTINGS}/audit", views.setting_audit, name="setting-audit"),
    path(f"{SETTINGS}/audit/export", views.setting_audit_export, name="setting-audit-export"),
]
