"""Routes of evaluators."""

from apps.evaluators.api.urls import urlpatterns as api

urlpatterns = [*api]
