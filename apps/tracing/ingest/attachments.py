"""Files that belong to runs, in object storage."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from uuid import UUID

from django.core.files.base import ContentFile
from django.core.files.storage import default_storage

from apps.tracing.store.types import Attachment


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
    if not default_storage.exists(path):
        default_storage.save(path, ContentFile(file.content))
    name = file.name.replace("\x00", "\ufffd")
    return Attachment(name=name, path=path, mime_type=file.mime_type, size=len(file.content))
