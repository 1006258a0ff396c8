from django.apps import AppConfig


class AgentRuntimeConfig(AppConfig):
    name = "apps.agent_runtime"
