from apps.api_keys.api.keys import urlpatterns

__all__ = ["urlpatterns"]
