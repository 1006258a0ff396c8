"""Requests as clients in other languages send them: headers, paths and encodings."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx

from tests.live import Live

STAINLESS = {
    "Accept": "application/json",
    "X-Stainless-Arch": "x64",
    "X-Stainless-OS": "Linux",
    "X-Stainless-Runtime-Version": "1",
    "X-Stainless-Retry-Count": "0",
    "X-Stainless-Timeout": "60",
}
GO = STAINLESS | {"User-Agent": "Langsmith/Go 0.18.0", "X-Stainless-Lang": "go"}
JAVA = STAINLESS | {"User-Agent": "LangsmithClientImpl/Java 0.1.0", "X-Stainless-Lang": "java"}
# The CLI sends this content type for requests without a body too.
CLI = {"User-Agent": "Go-http-client/1.1", "Content-Type": "application/json"}


@contextmanager
def open_client(live: Live, headers: dict[str, str]) -> Iterator[httpx.Client]:
    """Open a client at the address without a prefix; it does not follow redirects."""
    with httpx.Client(
        base_url=live.url, headers=headers | live.headers, timeout=60, follow_redirects=False
    ) as client:
        yield client


def read_json(response: httpx.Response, status: int = 200) -> Any:
    """Check the status of a response and return its body."""
    assert response.status_code == status, response.text
    return response.json()


def build_run(
    project: str, minutes: float = 1, /, parent: Any = None, **fields: Any
) -> dict[str, Any]:
    """Build a finished run with the ids that batches carry."""
    run_id = uuid.uuid4()
    start = datetime.now(UTC) - timedelta(minutes=minutes)
    segment = f"{start:%Y%m%dT%H%M%S%fZ}{run_id}"
    return {
        "id": str(run_id),
        "trace_id": parent["trace_id"] if parent else str(run_id),
        "dotted_order": f"{parent['dotted_order']}.{segment}" if parent else segment,
        "parent_run_id": parent["id"] if parent else None,
        "name": "agent",
        "run_type": "chain",
        "start_time": start.isoformat().replace("+00:00", "Z"),
        "end_time": (start + timedelta(seconds=1)).isoformat().replace("+00:00", "Z"),
        "session_name": project,
        "inputs": {"q": "why?"},
        **fields,
    }


def encode_multipart(*parts: tuple[str, Any, str, str | None]) -> tuple[bytes, str]:
    """Return the body and its type for parts of name, content, type and file name."""
    boundary = uuid.uuid4().hex
    body = b""
    for name, content, content_type, filename in parts:
        raw = content if isinstance(content, bytes) else json.dumps(content).encode()
        disposition = f'form-data; name="{name}"' + (f'; filename="{filename}"' if filename else "")
        body += (
            f"--{boundary}\r\nContent-Disposition: {disposition}\r\n"
            f"Content-Type: {content_type.format(length=len(raw))}\r\n\r\n"
        ).encode()
        body += raw + b"\r\n"
    return body + f"--{boundary}--\r\n".encode(), f"multipart/form-data; boundary={boundary}"
