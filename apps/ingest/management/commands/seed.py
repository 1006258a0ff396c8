"""`manage.py seed`: a realistic population of traces in a workspace."""

from __future__ import annotations

import time
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from apps.ingest.seeding.population import Seed, last_full_hour
from apps.organizations.models import Workspace


class Command(BaseCommand):
    help = "Fill a workspace with traces of all shapes, for benches and for looking at pages."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--runs", type=int, default=1_000_000)
        parser.add_argument("--days", type=int, default=14, help="spread over so many days")
        parser.add_argument("--seed", type=int, default=1, help="the same one makes the same runs")
        parser.add_argument("--workspace", metavar="ID", help="default: the first one")

    def handle(self, *_: Any, **options: Any) -> None:
        workspace = self._workspace(options["workspace"])
        began = time.monotonic()

        def show(done: int) -> None:
            rate = done / (time.monotonic() - began)
            share = min(100 * done // options["runs"], 100)
            self.stdout.write(f"\r  {share:3d} %  {done:>11,} runs  {rate:>7,.0f}/s ", ending="")
            self.stdout.flush()

        seed = Seed(
            workspace_id=workspace.pk,
            runs=options["runs"],
            days=options["days"],
            seed=options["seed"],
            until=last_full_hour(),
            progress=show,
        )
        made = seed.plant()
        took = time.monotonic() - began
        self.stdout.write(f"\r  {made:,} runs in {workspace} in {took:,.0f} s, settled")

    @staticmethod
    def _workspace(given: str | None) -> Workspace:
        workspaces = Workspace.objects.order_by("created_at")
        if given is not None:
            workspaces = workspaces.filter(pk=given)
        workspace = workspaces.first()
        if workspace is None:
            raise CommandError("There is no such workspace: `manage.py bootstrap` makes one.")
        return workspace
