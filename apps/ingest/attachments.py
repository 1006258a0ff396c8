"""Files that belong to runs, in object storage."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from uuid import UUID

from apps.core import objects
from apps.trace_store.store.types import Attachment

_NAME_LENGTH = 500
_TYPE_LENGTH = 200


@dataclass(frozen=True, slots=True)
class File:
    """An attachment as it came."""

    name: str
    mime_type: str
    content: bytes


def store(workspace_id: UUID, run_id: UUID, file: File) -> Attachment:
    """Put the file in object storage. Its place follows from what it holds, so repeats are free."""
    digest = hashlib.sha256(file.name.encode() + b"\0" + file.content).hexdigest()
    path = f"attachments/{workspace_id}/{run_id}/{digest}"
    objects.put(path, file.content)
    return Attachment(
        name=file.name.replace("\x00", "\ufffd")[:_NAME_LENGTH],
        path=path,
        mime_type=file.mime_type.replace("\x00", "\ufffd")[:_TYPE_LENGTH],
        size=len(file.content),
    )
