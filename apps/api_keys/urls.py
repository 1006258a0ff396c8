from django.urls import path

from apps.api_keys import views
from apps.api_keys.api import organization, personal, workspace

SETTINGS = "o/<uuid:workspace_id>/settings"
urlpatterns = [
    *personal.routes,
    *workspace.routes,
    *organization.routes,
    path(f"{SETTINGS}/keys", views.settings_keys, name="settings-keys"),
    path(f"{SETTINGS}/keys/personal", views.settings_personal_keys, name="settings-personal-keys"),
    path(
        f"{SETTINGS}/keys/organization",
        views.settings_organization_keys,
        name="settings-organization-keys",
    ),
    path(
        f"{SETTINGS}/keys/<uuid:key_id>/revoke",
        views.settings_key_revoke,
        name="settings-key-revoke",
    ),
    path(
        f"{SETTINGS}/keys/<uuid:key_id>/rotate",
        views.settings_key_rotate,
        name="settings-key-rotate",
    ),
]
