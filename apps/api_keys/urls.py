from django.urls import path

from apps.api_keys import views

SETTINGS = "o/<uuid:workspace_id>/settings"
urlpatterns = [
    path(f"{SETTINGS}/keys", views.setting_keys, name="setting-keys"),
    path(f"{SETTINGS}/keys/personal", views.setting_personal_keys, name="setting-personal-keys"),
    path(
        f"{SETTINGS}/keys/organization",
        views.setting_organization_keys,
        name="setting-organization-keys",
    ),
    path(
        f"{SETTINGS}/keys/<uuid:key_id>/revoke", views.setting_key_revoke, name="setting-key-revoke"
    ),
    path(
        f"{SETTINGS}/keys/<uuid:key_id>/rotate", views.setting_key_rotate, name="setting-key-rotate"
    ),
]
