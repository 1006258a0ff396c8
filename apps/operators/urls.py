from django.urls import path

from apps.operators import views

urlpatterns = [
    path("metrics", views.metrics, name="metrics"),
    path("end-impersonation", views.end_impersonation, name="impersonation-end"),
]
