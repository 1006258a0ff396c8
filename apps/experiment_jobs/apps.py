from django.apps import AppConfig


class ExperimentJobsConfig(AppConfig):
    name = "apps.experiment_jobs"

    def ready(self) -> None:
        from apps.experiment_jobs import runners  # noqa: PLC0415  (needs the apps)
        from apps.experiment_jobs.services.agent_runner import AgentRunner  # noqa: PLC0415

        runners.register_runner(runners.AGENT, AgentRunner())
