"""A response whose content the event loop produces, so that no thread waits for it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

from django.http import StreamingHttpResponse


class LoopResponse(StreamingHttpResponse):
    """A streamed response of a view on the thread pool; `stream` runs on the event loop.

    The status is sent with the first piece: an `AppError` before it becomes the response. When the
    client disconnects, the stream is cancelled where it waits.
    """

    def __init__(self, stream: AsyncGenerator[bytes, None], **options: Any) -> None:
        self.stream = stream
        super().__init__(stream, **options)
