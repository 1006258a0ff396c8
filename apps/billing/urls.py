from django.urls import path

from apps.billing import views

urlpatterns = [
    path("o/<uuid:workspace_id>/settings/billing", views.settings_billing, name="settings-billing")
]
