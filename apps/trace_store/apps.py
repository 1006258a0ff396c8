from django.apps import AppConfig


class TraceStoreConfig(AppConfig):
    name = "apps.trace_store"
