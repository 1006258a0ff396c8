"""Runs a function for several runs, in one process of the sandbox."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

from django.utils import timezone

from apps.deployments.build_dirs import organization_uid
from apps.deployments.sandbox import InvalidPolicy, SandboxError, SandboxUnavailable
from apps.evaluators.code.process import CodeProcess, CodeReply, CodeStopped
from apps.organizations.models import Organization

log = logging.getLogger(__name__)

BATCH_SECONDS = 20.0
"""After this time the rest of a batch waits for its organization's next turn."""
_RETRY_DELAY = timedelta(seconds=10)


def find_uid(organization_id: UUID) -> int | None:
    """The user that runs the organization's code, as it runs its agents."""
    numbers = Organization.objects.filter(pk=organization_id).values_list("number", flat=True)
    return organization_uid(numbers.get())


async def run_code(
    code: str, uid: int | None, subjects: Sequence[bytes]
) -> list[CodeReply | None] | datetime:
    """Return the reply for each subject, None for those that no time was left for.

    Returns a time at which to try again if no process can be started now.
    """
    batch = _Batch(code, uid)
    loop = asyncio.get_running_loop()
    deadline = loop.time() + BATCH_SECONDS
    replies: list[CodeReply | None] = []
    try:
        for subject in subjects:
            if replies and loop.time() > deadline:
                break
            replies.append(await batch.evaluate(subject))
    except (SandboxUnavailable, InvalidPolicy) as error:
        problem = f"Code evaluators cannot run on this installation: {error}"
        return [CodeReply(error=problem) for _ in subjects]
    except (SandboxError, OSError):
        log.exception("A process of an evaluator could not be started.")
        if not replies:
            return timezone.now() + _RETRY_DELAY
    finally:
        batch.close()
    return replies + [None] * (len(subjects) - len(replies))


class _Batch:
    """The process of one function, replaced when it has ended."""

    def __init__(self, code: str, uid: int | None) -> None:
        self._code, self._uid = code, uid
        self._process: CodeProcess | None = None

    async def evaluate(self, subject: bytes) -> CodeReply:
        """Return the reply, which says so if the function ended its process."""
        if self._process is not None:
            try:
                return await self._process.evaluate(subject)
            except CodeStopped:
                # What earlier runs left behind may be the reason: this one gets a fresh process.
                self.close()
        self._process = await CodeProcess.start(self._code, self._uid)
        try:
            return await self._process.evaluate(subject)
        except CodeStopped as stopped:
            self.close()
            return CodeReply(error=str(stopped))

    def close(self) -> None:
        if self._process is not None:
            self._process.close()
            self._process = None
