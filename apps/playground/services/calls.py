"""Executes one call of a model: events as they arrive, and the result with its figures."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.utils import timezone

from apps.core.json import is_too_deep, loads
from apps.datasets.services.content import find_violations
from apps.playground.services.call_records import ModelCallResult
from apps.providers.chat import ChatEvent, TextDelta, ThinkingDelta, ToolCallDelta
from apps.providers.client import PreparedCall, stream_chat
from apps.providers.reply import ReplyCollector

MAX_VIOLATIONS = 20


@dataclass(slots=True)
class CallExecution:
    """A call in progress; its reply and times are valid at any moment."""

    call: PreparedCall = field(repr=False)
    reply: ReplyCollector = field(default_factory=ReplyCollector)
    first_token_at: datetime | None = None
    first_token_seconds: float | None = None
    _started: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._started

    async def run(self) -> AsyncGenerator[ChatEvent, None]:
        """Yield the events of the reply. Raises the errors of `stream_chat`."""
        async with aclosing(stream_chat(self.call)) as stream:
            async for event in stream:
                is_token = isinstance(event, TextDelta | ThinkingDelta | ToolCallDelta)
                if is_token and self.first_token_at is None:
                    self.first_token_at = timezone.now()
                    self.first_token_seconds = self.seconds
                self.reply.add(event)
                yield event

    def result(self, *, error: str | None = None) -> ModelCallResult:
        """The end of the call now."""
        reply = self.reply
        return ModelCallResult(
            ended_at=timezone.now(),
            message=None if reply.is_empty and error else reply.message(),
            finish_reason=reply.finish_reason,
            usage=reply.usage,
            first_token_at=self.first_token_at,
            error=error,
        )


def check_reply(schema: dict[str, Any] | None, text: str) -> list[dict[str, str]] | None:
    """The rules of the response schema that the reply breaks; None without a schema.

    Takes time for large replies, so it runs in a thread.
    """
    if schema is None:
        return None
    try:
        value = loads(text)
    except ValueError:
        return [{"path": "$", "rule": "json", "message": "The reply is not JSON."}]
    if is_too_deep(value):
        return [{"path": "$", "rule": "json", "message": "The reply is nested too deep."}]
    violations = []
    for violation in find_violations(schema, value):
        violations.append(
            {"path": f"${violation.path}", "rule": violation.rule, "message": violation.message}
        )
        if len(violations) == MAX_VIOLATIONS:
            break
    return violations
