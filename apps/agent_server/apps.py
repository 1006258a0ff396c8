from django.apps import AppConfig


class AgentServerConfig(AppConfig):
    name = "apps.agent_server"
