"""From the bodies of the ingest endpoints to one list of operations.

What is wrong with one run, one file or one feedback is noted beside it; the others go on.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from uuid import UUID

import msgspec

from apps.feedback.wire import WireFeedback, decode_feedback
from apps.ingest.attachments import File
from apps.ingest.errors import BadBody
from apps.ingest.multipart import Part, part_of, pieces
from apps.ingest.operations import Operation
from apps.ingest.wire import PAYLOAD_FIELDS, Refusal, WireRun, decode_run
from apps.trace_store.json_repair import repair


@dataclass(frozen=True, slots=True)
class Refused:
    """A piece of the request that was not stored, and why."""

    what: str
    why: Refusal
    project_id: UUID | None = None

    def as_json(self) -> dict[str, str]:
        return {"id": self.what, "detail": str(self.why)}


@dataclass(slots=True)
class Said:
    """One operation on a run, as it came."""

    is_update: bool
    run: WireRun
    files: list[File] = field(default_factory=list)
    where: str = ""
    """Its place in the body, for a run without an id."""

    @property
    def name(self) -> str:
        return str(self.run.id or self.where)


Placing = Callable[[Callable[[Operation], UUID | None]], None]
"""Places operations in the transaction that writes them; it is told their projects."""


@dataclass(slots=True)
class Request:
    """What one request brings."""

    operations: list[Said] = field(default_factory=list)
    feedback: list[WireFeedback] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)
    placing: Callable[[UUID, Sequence[Operation]], Placing] | None = None
    """For wires whose runs do not say their places: what will place those that were read."""
    size: int = 0
    """Of the body, unpacked."""
    wire: str = "langsmith"

    @property
    def has_anything(self) -> bool:
        return bool(self.operations or self.feedback or self.refused)


class _Envelope(msgspec.Struct):
    post: list[msgspec.Raw] | None = None
    patch: list[msgspec.Raw] | None = None


_envelopes = msgspec.json.Decoder(_Envelope)


def decode_single(body: bytes, *, is_update: bool, run_id: UUID | None = None) -> Request:
    """The request of a single run; an id in the address goes before one in the body."""
    run = decode_run(body or b"{}")
    if run_id is not None:
        run.id = run_id
    return Request([Said(is_update, run)])


def decode_batch(body: bytes) -> Request:
    """`{"post": [...], "patch": [...]}`; an unreadable run does not stop the others."""
    try:
        envelope = _envelope(body)
    except (msgspec.ValidationError, ValueError, RecursionError) as error:
        raise BadBody(f"The body is not a batch of runs: {error}") from None
    request = Request()
    for is_update, runs in ((False, envelope.post), (True, envelope.patch)):
        for place, raw in enumerate(runs or ()):
            where = f"{'patch' if is_update else 'post'}[{place}]"
            try:
                request.operations.append(Said(is_update, decode_run(raw), where=where))
            except Refusal as refusal:
                request.refused.append(Refused(_id_in(raw) or where, refusal))
    return request


def _envelope(body: bytes) -> _Envelope:
    try:
        return _envelopes.decode(body)
    except msgspec.ValidationError:
        raise
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _envelopes.decode(repair(body))


class _Identified(msgspec.Struct):
    id: str | None = None


def _id_in(raw: msgspec.Raw) -> str | None:
    try:
        return msgspec.json.decode(raw, type=_Identified).id
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


@dataclass(slots=True)
class _Pieces:
    """The parts of one operation, which come in any order."""

    main: bytes | None = None
    fields: dict[str, bytes] = field(default_factory=dict)
    broken: Refusal | None = None
    """What is wrong with one of them, and so with the run: it shall not lose a field silently."""


_JSON_OF_RUN = re.compile(
    rb'\r\nContent-Disposition: form-data; name="(post|patch)\.([0-9a-f-]{36})(?:\.([a-z]+))?"'
    rb'(?:; filename="[^"\\\r\n]*")?\r\nContent-Type: application/json(?:; length=(\d{1,18}))?'
    rb"(?:\r\nContent-Length: (\d{1,18}))?\r\n\r\n"
)
"""The head of nearly every part, in one look."""


def decode_multipart(body: bytes, boundary: bytes) -> Request:
    """Parts `post.<id>`, `patch.<id>`, their fields, attachments and feedback, in any order."""
    request = Request()
    sorting = _Sorting(request)
    for piece in pieces(body, boundary):
        usual = _JSON_OF_RUN.match(piece)
        if usual is not None and sorting.take_usual(usual, piece):
            continue
        part = part_of(piece)
        try:
            sorting.take(part)
        except Refusal as refusal:
            request.refused.append(Refused(part.name, refusal))
    request.operations = list(_assembled(sorting.runs, request.refused))
    _hand_out(sorting.files, request)
    return request


@dataclass(slots=True)
class _Sorting:
    """The parts of a body, as they come."""

    request: Request
    ids: dict[str, UUID] = field(default_factory=dict)
    runs: dict[tuple[str, UUID], _Pieces] = field(default_factory=dict)
    files: dict[UUID, list[File]] = field(default_factory=dict)
    _usual: dict[tuple[bytes, bytes], _Pieces] = field(default_factory=dict)

    def take_usual(self, head: re.Match[bytes], piece: bytes) -> bool:
        """Take JSON of a run; False when it needs a closer look."""
        kind, identity, name, in_type, in_header = head.groups()
        content = piece[head.end() :]
        declared = in_type or in_header
        if declared is not None and int(declared) != len(content):
            return False
        found = self._usual.get((kind, identity))
        if found is None:
            try:
                subject = UUID(identity.decode())
            except ValueError:
                return False
            found = self.runs.setdefault((kind.decode(), subject), _Pieces())
            self._usual[kind, identity] = found
        if name is None:
            found.main = content
        else:
            found.fields[name.decode()] = content
        return True

    def take(self, part: Part) -> None:
        """Take any part; `Refusal` says why not."""
        kind, _, rest = part.name.partition(".")
        identity, _, last = rest.partition(".")
        subject = self._subject(identity)
        match kind:
            case "post" | "patch":
                found = self.runs.setdefault((kind, subject), _Pieces())
                if not part.is_whole:
                    found.broken = _cut_off(part)
                elif not last:
                    found.main = part.content
                else:
                    found.fields[last] = part.content
            case _ if not part.is_whole:
                raise _cut_off(part)
            case "attachment":
                if not last:
                    raise Refusal("The attachment has no name.", "bad_part")
                file = File(last, part.content_type, part.content)
                self.files.setdefault(subject, []).append(file)
            case "feedback":
                self.request.feedback.append(decode_feedback(part.content, feedback_id=subject))
            case _:
                raise Refusal("This kind of part is not known.", "bad_part")

    def _subject(self, identity: str) -> UUID:
        subject = self.ids.get(identity)
        if subject is None:
            try:
                subject = self.ids[identity] = UUID(identity)
            except ValueError:
                raise Refusal("The part's name holds no id.", "bad_part") from None
        return subject


def _cut_off(part: Part) -> Refusal:
    came, declared = len(part.content), part.declared_length
    return Refusal(f"Of `{part.name}` came {came} bytes, {declared} were declared.", "bad_length")


def _assembled(pieces: dict[tuple[str, UUID], _Pieces], refused: list[Refused]) -> Iterable[Said]:
    for (kind, run_id), found in pieces.items():
        try:
            if found.broken is not None:
                raise found.broken
            if found.main is None:
                raise Refusal("Fields of the run came, but not the run itself.", "no_run")
            run = decode_run(found.main)
            if run.id is None:
                run.id = run_id
            if run.id != run_id:
                raise Refusal(f"The part holds a run of another id, {run.id}.", "bad_part")
        except Refusal as refusal:
            refused.append(Refused(f"{kind}.{run_id}", refusal))
            continue
        for name, content in found.fields.items():
            if name in PAYLOAD_FIELDS:  # of others nobody knows what they mean
                setattr(run, name, msgspec.Raw(content))
        yield Said(kind == "patch", run)


def _hand_out(files: dict[UUID, list[File]], request: Request) -> None:
    """Each file to an operation of its run; one whose run is not in the request updates it."""
    refused_runs = {refused.what.partition(".")[2] for refused in request.refused}
    for run_id, of_run in files.items():
        owner = next((one for one in request.operations if one.run.id == run_id), None)
        if owner is not None:
            owner.files += of_run
        elif str(run_id) in refused_runs:
            request.refused.append(
                Refused(f"attachment.{run_id}", Refusal("The file's run was refused.", "no_run"))
            )
        else:
            request.operations.append(Said(True, WireRun(id=run_id), of_run))
