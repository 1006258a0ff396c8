"""Decodes the bodies of the ingest endpoints into one request of run operations and feedback.

An invalid run, attachment or feedback is rejected alone; the rest of the request is stored.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol
from uuid import UUID

import msgspec

from apps.feedback.errors import InvalidFeedback
from apps.feedback.wire import WireFeedback, decode_feedback
from apps.ingest.errors import BadBody
from apps.ingest.multipart import FormPart, parse_part, split_parts
from apps.ingest.operations import (
    PAYLOAD_FIELDS,
    AttachmentFile,
    RejectedItem,
    RunOperation,
    WireRun,
    decode_run,
)
from apps.trace_store.json_repair import repair

ProjectOf = Callable[[RunOperation], UUID | None]
"""The project of an operation, once the projects of the request are resolved."""


class Assembler(Protocol):
    """Assigns positions to operations that do not state one, such as those of OTLP spans."""

    def assign_positions(
        self, workspace_id: UUID, operations: Sequence[RunOperation], project_of: ProjectOf
    ) -> None:
        """Set run ids and positions in the transaction of the write. Safe to repeat."""


@dataclass(slots=True)
class IngestRequest:
    """The decoded content of one request."""

    operations: list[RunOperation] = field(default_factory=list)
    feedback: list[WireFeedback] = field(default_factory=list)
    rejected: list[RejectedItem] = field(default_factory=list)
    assembler: Assembler | None = None
    size: int = 0
    """Bytes of the decompressed body."""
    protocol: str = "langsmith"

    @property
    def is_empty(self) -> bool:
        return not (self.operations or self.feedback or self.rejected)

    def reject(self, item: str, error: RejectedItem) -> None:
        error.item = item
        self.rejected.append(error)


MAX_ATTACHMENTS = 500
"""Per request: each is written durably before the response."""


class _Batch(msgspec.Struct):
    post: list[msgspec.Raw] | None = None
    patch: list[msgspec.Raw] | None = None


_batch_decoder = msgspec.json.Decoder(_Batch)


def decode_single(body: bytes, *, is_update: bool, run_id: UUID | None = None) -> IngestRequest:
    """Decode one run; the id in the URL has precedence over the id in the body."""
    run = decode_run(body or b"{}")
    if run_id is not None:
        run.id = run_id
    return IngestRequest([RunOperation(is_update, run)])


def decode_batch(body: bytes) -> IngestRequest:
    """Decode `{"post": [...], "patch": [...]}`."""
    try:
        batch = _decode_envelope(body)
    except (msgspec.ValidationError, ValueError, RecursionError) as error:
        raise BadBody(f"The body is not a batch of runs: {error}") from None
    request = IngestRequest()
    for is_update, runs in ((False, batch.post), (True, batch.patch)):
        for index, raw in enumerate(runs or ()):
            location = f"{'patch' if is_update else 'post'}[{index}]"
            try:
                operation = RunOperation(is_update, decode_run(raw), location=location)
            except RejectedItem as error:
                request.reject(_decode_id(raw) or location, error)
            else:
                request.operations.append(operation)
    return request


def _decode_envelope(body: bytes) -> _Batch:
    try:
        return _batch_decoder.decode(body)
    except msgspec.ValidationError:
        raise
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _batch_decoder.decode(repair(body))


class _RunWithId(msgspec.Struct):
    id: str | None = None


def _decode_id(raw: msgspec.Raw) -> str | None:
    try:
        return msgspec.json.decode(raw, type=_RunWithId).id
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


# -- multipart ---------------------------------------------------------------


@dataclass(slots=True)
class _RunParts:
    """The parts of one operation, which arrive in any order."""

    run: bytes | None = None
    payloads: dict[str, bytes] = field(default_factory=dict)
    error: RejectedItem | None = None
    """An error in one part rejects the run: it must not lose a field silently."""


_RUN_PART_HEAD = re.compile(
    rb'\r\nContent-Disposition: form-data; name="(post|patch)\.([0-9a-f-]{36})(?:\.([a-z]+))?"'
    rb'(?:; filename="[^"\\\r\n]*")?\r\nContent-Type: application/json(?:; length=(\d{1,18}))?'
    rb"(?:\r\nContent-Length: (\d{1,18}))?\r\n\r\n"
)
"""Matches the head of nearly every part at once; `parse_part` handles all others."""


def decode_multipart(body: bytes, boundary: bytes) -> IngestRequest:
    """Decode parts `post.<id>`, `patch.<id>`, their fields, attachments and feedback."""
    request = IngestRequest()
    decoder = _MultipartDecoder(request)
    for raw_part in split_parts(body, boundary):
        head = _RUN_PART_HEAD.match(raw_part)
        if head is not None and decoder.add_run_part(head, raw_part):
            continue
        part = parse_part(raw_part)
        try:
            decoder.add_part(part)
        except RejectedItem as error:
            request.reject(part.name, error)
    request.operations = list(decoder.build_operations())
    decoder.assign_files()
    return request


@dataclass(slots=True)
class _MultipartDecoder:
    request: IngestRequest
    ids: dict[str, UUID] = field(default_factory=dict)
    runs: dict[tuple[str, UUID], _RunParts] = field(default_factory=dict)
    files: dict[UUID, list[AttachmentFile]] = field(default_factory=dict)
    file_count: int = 0
    _by_raw_key: dict[tuple[bytes, bytes], _RunParts] = field(default_factory=dict)

    def add_run_part(self, head: re.Match[bytes], raw_part: bytes) -> bool:
        """Add a JSON part of a run; return False if `add_part` must handle it."""
        kind, raw_id, payload, type_length, header_length = head.groups()
        content = raw_part[head.end() :]
        declared = type_length or header_length
        if declared is not None and int(declared) != len(content):
            return False
        parts = self._by_raw_key.get((kind, raw_id))
        if parts is None:
            try:
                run_id = UUID(raw_id.decode())
            except ValueError:
                return False
            parts = self.runs.setdefault((kind.decode(), run_id), _RunParts())
            self._by_raw_key[kind, raw_id] = parts
        if payload is None:
            parts.run = content
        else:
            parts.payloads[payload.decode()] = content
        return True

    def add_part(self, part: FormPart) -> None:
        """Add a part of any kind. Raises `RejectedItem` if it is invalid."""
        kind, _, path = part.name.partition(".")
        id_text, _, field_name = path.partition(".")
        item_id = self._parse_id(id_text)
        match kind:
            case "post" | "patch":
                parts = self.runs.setdefault((kind, item_id), _RunParts())
                if not part.is_complete:
                    parts.error = _truncation_error(part)
                elif not field_name:
                    parts.run = part.content
                else:
                    parts.payloads[field_name] = part.content
            case _ if not part.is_complete:
                raise _truncation_error(part)
            case "attachment":
                if not field_name:
                    raise RejectedItem("The attachment has no name.", "bad_part")
                self.file_count += 1
                if self.file_count > MAX_ATTACHMENTS:
                    raise BadBody(f"A request may have at most {MAX_ATTACHMENTS} attachments.")
                file = AttachmentFile(field_name, part.content_type, part.content)
                self.files.setdefault(item_id, []).append(file)
            case "feedback":
                try:
                    feedback = decode_feedback(part.content, feedback_id=item_id)
                except InvalidFeedback as error:
                    raise RejectedItem(error.detail, error.reason) from None
                self.request.feedback.append(feedback)
            case _:
                raise RejectedItem("Parts of this kind are not supported.", "bad_part")

    def _parse_id(self, text: str) -> UUID:
        item_id = self.ids.get(text)
        if item_id is None:
            try:
                item_id = self.ids[text] = UUID(text)
            except ValueError:
                raise RejectedItem("The name of the part contains no id.", "bad_part") from None
        return item_id

    def build_operations(self) -> Iterable[RunOperation]:
        for (kind, run_id), parts in self.runs.items():
            try:
                if parts.error is not None:
                    raise parts.error
                if parts.run is None:
                    raise RejectedItem("The request has fields of the run but no run.", "no_run")
                run = decode_run(parts.run)
                if run.id is None:
                    run.id = run_id
                if run.id != run_id:
                    detail = f"The run in the part has another id, {run.id}."
                    raise RejectedItem(detail, "bad_part")
            except RejectedItem as error:
                self.request.reject(f"{kind}.{run_id}", error)
                continue
            for name, content in parts.payloads.items():
                if name in PAYLOAD_FIELDS:
                    setattr(run, name, msgspec.Raw(content))
            yield RunOperation(kind == "patch", run)

    def assign_files(self) -> None:
        """Add files to the first operation of their run, or else to a new update."""
        request = self.request
        rejected_ids = {error.item.partition(".")[2] for error in request.rejected}
        for run_id, files in self.files.items():
            owner = next(
                (operation for operation in request.operations if operation.run.id == run_id), None
            )
            if owner is not None:
                owner.files += files
            elif str(run_id) in rejected_ids:
                error = RejectedItem("The run of the attachment was rejected.", "no_run")
                request.reject(f"attachment.{run_id}", error)
            else:
                request.operations.append(RunOperation(True, WireRun(id=run_id), files))


def _truncation_error(part: FormPart) -> RejectedItem:
    size, declared = len(part.content), part.declared_length
    detail = f"Part `{part.name}` is truncated: got {size} of {declared} bytes."
    return RejectedItem(detail, "bad_length")
