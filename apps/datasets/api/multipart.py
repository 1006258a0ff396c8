"""Decodes multipart bodies with examples: one part for each field and each attachment."""

from __future__ import annotations

from dataclasses import dataclass, field
from uuid import UUID

import msgspec
from django.http import HttpRequest

from apps.core import errors as core_errors
from apps.datasets.services.attachments import ExampleFile
from apps.datasets.services.examples import ExampleChange, NewExample
from apps.datasets.wire import (
    AttachmentsOperations,
    WireExample,
    WireExampleUpdate,
    decode,
)
from apps.ingest.multipart import FormPart, parse_boundary, parse_part, split_parts
from apps.ingest.request_body import read_body

MAX_ATTACHMENTS = 2000
"""Per request: each is written durably before the response."""
_ATTACHMENT = "attachment."
_ID_LENGTH = 36


@dataclass(slots=True)
class ExampleParts:
    """The parts of one example, which arrive in any order."""

    main: bytes | None = None
    fields: dict[str, bytes] = field(default_factory=dict)
    files: list[ExampleFile] = field(default_factory=list)


def read_parts(request: HttpRequest) -> dict[UUID, ExampleParts]:
    """Return the parts of each example, in the order of the request.

    Raises `BadBody` for a malformed body and `Invalid` for an unknown or truncated part.
    """
    boundary = parse_boundary(request.headers.get("Content-Type", ""))
    examples: dict[UUID, ExampleParts] = {}
    file_count = 0
    for raw_part in split_parts(read_body(request), boundary):
        part = parse_part(raw_part)
        if not part.is_complete:
            raise core_errors.Invalid(
                f"Part `{part.name:.100}` is truncated: got {len(part.content)} of"
                f" {part.declared_length} bytes."
            )
        example_id, name = _parse_name(part.name)
        parts = examples.setdefault(example_id, ExampleParts())
        if name.startswith(_ATTACHMENT):
            file_count += 1
            if file_count > MAX_ATTACHMENTS:
                raise core_errors.Invalid(
                    f"A request may have at most {MAX_ATTACHMENTS} attachments."
                )
            parts.files.append(_parse_file(part, name))
        elif name:
            parts.fields[name] = part.content
        else:
            parts.main = part.content
    return examples


def _parse_name(name: str) -> tuple[UUID, str]:
    """Split `<id>` or `<id>.<field>`."""
    id_text, separator, rest = name[:_ID_LENGTH], name[_ID_LENGTH:][:1], name[_ID_LENGTH + 1 :]
    try:
        example_id = UUID(id_text)
    except ValueError:
        example_id = None
    is_known = rest in {"", "inputs", "outputs", "attachments_operations"}
    if example_id is None or separator not in {"", "."} or (separator and not rest):
        raise core_errors.Invalid(f"Part `{name:.100}` does not begin with the id of an example.")
    if not is_known and not rest.startswith(_ATTACHMENT):
        raise core_errors.Invalid(f"Parts named `{rest:.100}` are not supported.")
    return example_id, rest


def _parse_file(part: FormPart, name: str) -> ExampleFile:
    return ExampleFile(name.removeprefix(_ATTACHMENT), part.content_type, part.content)


def decode_new_examples(examples: dict[UUID, ExampleParts]) -> list[NewExample]:
    decoded = []
    for example_id, parts in examples.items():
        if parts.main is None:
            raise core_errors.Invalid(f"Part `{example_id}` is missing.")
        if "attachments_operations" in parts.fields:
            raise core_errors.Invalid(
                f"Example {example_id} is new: `attachments_operations` are for changes."
            )
        wire = decode(parts.main, WireExample)
        _check_id(example_id, wire.id)
        wire.id = example_id
        wire.inputs = _raw(parts, "inputs", wire.inputs)
        wire.outputs = _raw(parts, "outputs", wire.outputs)
        decoded.append(NewExample(wire, parts.files))
    return decoded


def decode_changes(examples: dict[UUID, ExampleParts]) -> list[ExampleChange]:
    decoded = []
    for example_id, parts in examples.items():
        wire = decode(parts.main or b"{}", WireExampleUpdate)
        _check_id(example_id, wire.id)
        wire.id = example_id
        wire.inputs = _raw(parts, "inputs", wire.inputs)
        wire.outputs = _raw(parts, "outputs", wire.outputs)
        if "attachments_operations" in parts.fields:
            wire.attachments_operations = decode(
                parts.fields["attachments_operations"], AttachmentsOperations
            )
        decoded.append(ExampleChange(wire, parts.files))
    return decoded


def _check_id(example_id: UUID, own_id: UUID | None) -> None:
    if own_id not in {None, example_id}:
        raise core_errors.Invalid(f"Part `{example_id}` has another `id` in it.")


def _raw(parts: ExampleParts, name: str, default: msgspec.Raw) -> msgspec.Raw:
    content = parts.fields.get(name)
    return default if content is None else msgspec.Raw(content)
