from django.apps import AppConfig


class EvaluatorsConfig(AppConfig):
    name = "apps.evaluators"

    def ready(self) -> None:
        from apps.evaluators.services.rules import list_choices  # noqa: PLC0415  (needs the apps)
        from apps.evaluators.services.selection import (  # noqa: PLC0415
            REMOVAL_STATEMENT,
            select_changed_runs,
        )
        from apps.experiment_jobs.evaluator_choice import (  # noqa: PLC0415
            register_evaluator_source,
        )
        from apps.trace_store.hooks import (  # noqa: PLC0415
            register_postprocess_step,
            register_removal,
        )

        register_evaluator_source(list_choices)
        register_postprocess_step(select_changed_runs)
        register_removal(REMOVAL_STATEMENT)
