from django.apps import AppConfig
from django.core.signals import request_started
from django.db.backends.signals import connection_created


class CoreConfig(AppConfig):
    name = "apps.core"

    def ready(self) -> None:
        from apps.core import checks, connections  # noqa: F401, PLC0415  (loaded apps)
        from apps.core.observability import reporting, slow_statements  # noqa: PLC0415

        request_started.connect(connections.close_dead, dispatch_uid="close-dead-connections")
        connection_created.connect(
            slow_statements.log_slow_statements, dispatch_uid="log-slow-statements"
        )
        reporting.start()
