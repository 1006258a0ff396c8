from django.apps import AppConfig


class SwitchesConfig(AppConfig):
    name = "apps.switches"
