"""`manage.py seed`: fill a workspace with generated traces."""

from __future__ import annotations

import time
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from apps.ingest.seeding.population import PopulationGenerator, last_full_hour
from apps.organizations.models import Workspace


class Command(BaseCommand):
    help = "Fill a workspace with generated traces, for benchmarks and development."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--runs", type=int, default=1_000_000)
        parser.add_argument("--days", type=int, default=14, help="period of the traces")
        parser.add_argument("--seed", type=int, default=1, help="the same seed gives the same runs")
        parser.add_argument("--workspace", metavar="ID", help="default: the oldest workspace")

    def handle(self, *_: Any, **options: Any) -> None:
        workspace = self._workspace(options["workspace"])
        started_at = time.monotonic()

        def show(done: int) -> None:
            rate = done / (time.monotonic() - started_at)
            share = min(100 * done // options["runs"], 100)
            self.stdout.write(f"\r  {share:3d} %  {done:>11,} runs  {rate:>7,.0f}/s ", ending="")
            self.stdout.flush()

        generator = PopulationGenerator(
            workspace_id=workspace.pk,
            runs=options["runs"],
            days=options["days"],
            seed=options["seed"],
            until=last_full_hour(),
            progress=show,
        )
        run_count = generator.generate()
        seconds = time.monotonic() - started_at
        self.stdout.write(f"\r  {run_count:,} runs in {workspace} in {seconds:,.0f} s")

    @staticmethod
    def _workspace(workspace_id: str | None) -> Workspace:
        workspaces = Workspace.objects.order_by("created_at")
        if workspace_id is not None:
            workspaces = workspaces.filter(pk=workspace_id)
        workspace = workspaces.first()
        if workspace is None:
            raise CommandError("No such workspace. Create one with `manage.py bootstrap_instance`.")
        return workspace
