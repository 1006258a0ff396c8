from django.apps import AppConfig


class RateLimitsConfig(AppConfig):
    name = "apps.rate_limits"
    verbose_name = "Limits"
