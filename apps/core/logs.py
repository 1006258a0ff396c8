"""Structured logs: one line an event, with ids of request and workspace and no payloads."""

from __future__ import annotations

import structlog
from celery import current_task

from apps.core import request_context


def formatter(*, as_json: bool) -> structlog.stdlib.ProcessorFormatter:
    """The formatter of the standard library's records and of structlog's events alike."""
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        with_origin,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.processors.format_exc_info,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    # JSON keeps an event on one line: a traceback is a field of it.
    last: list[structlog.typing.Processor] = (
        [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
        if as_json
        # Its own choice shows the variables of each frame, and with them what tenants sent.
        else [
            structlog.dev.ConsoleRenderer(
                colors=False, exception_formatter=structlog.dev.plain_traceback
            )
        ]
    )
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared,
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last],
    )


def with_origin(
    logger: object, method: str, event: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    """Adds who and where: read when something is logged, so that requests pay nothing for it."""
    found = request_context.current()
    if found is not None:
        caller = found.caller
        said = {
            "request_id": found.request_id,
            "workspace_id": caller and caller.workspace_id,
            "organization_id": found.organization_id,
            "key_id": found.key_id,
            "user_id": found.user_id,
        }
        for name, value in said.items():
            if value and name not in event:
                event[name] = str(value)
    if current_task:
        event.setdefault("task", current_task.name)
        event.setdefault("task_id", current_task.request.id)
    return event
