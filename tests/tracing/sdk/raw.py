"""How clients in other languages speak to the platform: their headers, paths and encodings."""

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
# It says so of bodies that it does not send, too.
CLI = {"User-Agent": "Go-http-client/1.1", "Content-Type": "application/json"}


@contextmanager
def speaking(live: Live, headers: dict[str, str]) -> Iterator[httpx.Client]:
    """A client at the address without a prefix; a redirect would be an answer of its own."""
    with httpx.Client(
        base_url=live.url, headers=headers | live.headers, timeout=60, follow_redirects=False
    ) as client:
        yield client


def told(answer: httpx.Response, status: int = 200) -> Any:
    """The body of an answer that is as it should be."""
    assert answer.status_code == status, answer.text
    return answer.json()


def run(project: str, minutes: float = 1, /, parent: Any = None, **fields: Any) -> dict[str, Any]:
    """A finished run with the ids that batches carry."""
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


def multipart(*parts: tuple[str, Any, str, str | None]) -> tuple[bytes, str]:
    """The body and its type, of parts with name, content, type and the name of a file."""
    boundary = uuid.uuid4().hex
    body = b""
    for name, content, kind, filename in parts:
        raw = content if isinstance(content, bytes) else json.dumps(content).encode()
        disposition = f'form-data; name="{name}"' + (f'; filename="{filename}"' if filename else "")
        body += (
            f"--{boundary}\r\nContent-Disposition: {disposition}\r\n"
            f"Content-Type: {kind.format(length=len(raw))}\r\n\r\n"
        ).encode()
        body += raw + b"\r\n"
    return body + f"--{boundary}--\r\n".encode(), f"multipart/form-data; boundary={boundary}"
