from django.apps import AppConfig


class EvaluatorsConfig(AppConfig):
    name = "apps.evaluators"

    def ready(self) -> None:
        from apps.evaluators.services.selection import (  # noqa: PLC0415  (needs the apps)
            REMOVAL_STATEMENT,
            select_changed_runs,
        )
        from apps.trace_store.hooks import (  # noqa: PLC0415
            register_postprocess_step,
            register_removal,
        )

        register_postprocess_step(select_changed_runs)
        register_removal(REMOVAL_STATEMENT)
