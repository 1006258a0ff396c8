"""One builder at work on one revision: its log, its lease and its time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.conf import settings

from apps.deployments.build_dirs import Workplace
from apps.deployments.builds.errors import BuildFailed
from apps.deployments.models import Revision
from apps.deployments.services import progress
from apps.deployments.services.logs import RevisionLog
from apps.deployments.statuses import RevisionStatus

TICK_SECONDS = 0.2
_RENEW_SECONDS = 3.0


class Work:
    """What every step of a build shares.

    A step that waits calls `tick` at least every `TICK_SECONDS`: it keeps the log and the lease
    and raises `LeaseLost` when a person stopped the revision or another builder has it.
    """

    def __init__(self, revision: Revision, log: RevisionLog) -> None:
        self.revision = revision
        self.log = log
        workspace = revision.workspace
        self.organization_number = workspace.organization.number
        self.place = self.place_of(revision.attempt)
        self._renewed_at = time.monotonic()
        self._deadline = time.monotonic() + settings.BUILD_TIMEOUT_SECONDS

    def place_of(self, attempt: int) -> Workplace:
        return Workplace.of(self.revision.pk, attempt, self.organization_number)

    def tick(self) -> None:
        self.log.flush_if_due()
        now = time.monotonic()
        if now - self._renewed_at > _RENEW_SECONDS:
            progress.renew(self.revision)
            self._renewed_at = now
        if now > self._deadline:
            raise BuildFailed(
                f"It took longer than the {settings.BUILD_TIMEOUT_SECONDS} seconds that a build may"
                " take."
            )

    def advance(self, to: RevisionStatus, **changes: Any) -> None:
        self.log.flush()
        attempt = self.revision.attempt
        self.revision = progress.advance(self.revision.pk, to=to, attempt=attempt, **changes)

    @contextmanager
    def step(self, title: str) -> Iterator[None]:
        """A part of the build with its heading and its time in the log."""
        began = time.monotonic()
        self.log.write(f"==> {title}")
        yield
        self.log.write(f"    done in {time.monotonic() - began:.1f} s", level="DEBUG")
