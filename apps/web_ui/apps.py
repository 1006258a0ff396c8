from django.apps import AppConfig


class WebUiConfig(AppConfig):
    name = "apps.web_ui"
