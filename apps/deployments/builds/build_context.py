"""The shared context of one build: log, lease, deadline and folder."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.conf import settings

from apps.deployments.build_dirs import RevisionDir
from apps.deployments.models import Revision
from apps.deployments.services import progress
from apps.deployments.services.logs import RevisionLog
from apps.deployments.statuses import RevisionStatus

TICK_SECONDS = 0.2
_RENEW_SECONDS = 3.0


class BuildFailed(Exception):
    """The build cannot continue; the message is for the author of the repository."""


class BuildContext:
    """The state that all steps of a build share.

    A step that waits calls `tick` at least every `TICK_SECONDS`. It flushes the log, renews the
    lease and raises `LeaseLost` if a user stopped the revision or another builder has it.
    """

    def __init__(self, revision: Revision, log: RevisionLog) -> None:
        self.revision = revision
        self.log = log
        workspace = revision.workspace
        self.organization_number = workspace.organization.number
        self.directory = self.directory_for(revision.attempt)
        self._step = "Preparing"
        self._renewed_at = time.monotonic()
        self._deadline = time.monotonic() + settings.BUILD_TIMEOUT_SECONDS

    def directory_for(self, attempt: int) -> RevisionDir:
        return RevisionDir.for_attempt(self.revision.pk, attempt, self.organization_number)

    def tick(self) -> None:
        self.log.flush_if_due()
        now = time.monotonic()
        if now - self._renewed_at > _RENEW_SECONDS:
            progress.renew_lease(self.revision)
            self._renewed_at = now
        if now > self._deadline:
            raise BuildFailed(
                f"The build exceeded its time limit of {settings.BUILD_TIMEOUT_SECONDS} seconds"
                f" in the step: {self._step}."
            )

    def advance(self, to: RevisionStatus, **changes: Any) -> None:
        self.log.flush()
        attempt = self.revision.attempt
        self.revision = progress.advance(self.revision.pk, to=to, attempt=attempt, **changes)

    @contextmanager
    def step(self, title: str) -> Iterator[None]:
        """Log the heading of a build step and its duration."""
        started_at, self._step = time.monotonic(), title
        self.log.write(f"==> {title}")
        yield
        self.log.write(f"    done in {time.monotonic() - started_at:.1f} s", level="DEBUG")
