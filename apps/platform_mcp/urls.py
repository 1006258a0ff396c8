from django.urls import path

from apps.platform_mcp import views

urlpatterns = [path("mcp", views.mcp, name="platform-mcp")]
