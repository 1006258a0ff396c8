from django.apps import AppConfig


class PlatformMcpConfig(AppConfig):
    name = "apps.platform_mcp"
