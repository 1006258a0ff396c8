from django.urls import path

from apps.rate_limits import views

_SETTINGS = "o/<uuid:workspace_id>/settings"
urlpatterns = [
    path(f"{_SETTINGS}/limits", views.settings_limits, name="settings-limits"),
    path(f"{_SETTINGS}/addresses", views.settings_addresses, name="settings-addresses"),
]
