"""Structured logs: one line per event, with ids of request and workspace, without payloads."""

from __future__ import annotations

import logging

import structlog
from celery import current_task

from apps.core import request_context


def build_formatter(*, as_json: bool) -> structlog.stdlib.ProcessorFormatter:
    """Return the formatter of standard library records and structlog events."""
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        add_request_context,
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
    # JSON keeps an event on one line: its traceback is a field.
    renderers: list[structlog.typing.Processor] = (
        [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
        if as_json
        # The default formatter prints frame variables, which contain tenant data.
        else [
            structlog.dev.ConsoleRenderer(
                colors=False, exception_formatter=structlog.dev.plain_traceback
            )
        ]
    )
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared,
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *renderers],
    )


def add_request_context(
    logger: object, method: str, event: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    """Add ids of the active request; computed on logging, so requests without logs pay nothing."""
    context = request_context.current()
    if context is not None:
        caller = context.caller
        fields = {
            "request_id": context.request_id,
            "workspace_id": caller and caller.workspace_id,
            "organization_id": context.organization_id,
            "key_id": context.key_id,
            "user_id": context.user_id,
        }
        for name, value in fields.items():
            if value and name not in event:
                event[name] = str(value)
    if current_task:
        event.setdefault("task", current_task.name)
        event.setdefault("task_id", current_task.request.id)
    return event


class WebSocketRefusalFilter(logging.Filter):
    """Drops the error that uvicorn logs after each WebSocket that was refused by a response.

    Its sans-I/O implementation takes the response of `websocket.http.response` for a handshake
    that was not completed.
    """

    _MESSAGE = "ASGI callable returned without completing handshake."

    def filter(self, record: logging.LogRecord) -> bool:
        return record.name != "uvicorn.error" or record.msg != self._MESSAGE
