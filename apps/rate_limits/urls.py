from django.urls import path

from apps.rate_limits import views

_SETTINGS = "o/<uuid:workspace_id>/settings"
urlpatterns = [
    path(f"{_SETTINGS}/limits", views.setting_limits, name="setting-limits"),
    path(f"{_SETTINGS}/addresses", views.setting_addresses, name="setting-addresses"),
]
