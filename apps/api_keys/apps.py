from django.apps import AppConfig


class ApiKeysConfig(AppConfig):
    name = "apps.api_keys"
