"""Runs to write: their identity in the tree and the content of creates and updates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from apps.trace_store.dotted_order import is_far_apart
from apps.trace_store.filters.terms import RunTerms
from apps.trace_store.types import Attachment, Payload, RunKey

Row = dict[str, Any]


@dataclass(slots=True)
class RunContent:
    """The parts of a run in a request; absent parts leave the stored values unchanged."""

    columns: Row = field(default_factory=dict)
    """Values of `VALUE_COLUMNS`; those of jsonb columns as JSON."""
    metadata: bytes = b""
    """A JSON object, or empty."""
    payloads: Mapping[Payload, bytes] = field(default_factory=dict)
    attachments: Mapping[str, Attachment] = field(default_factory=dict)

    def over(self, other: RunContent) -> RunContent:
        """Merge both; this content wins where they differ."""
        return RunContent(
            other.columns | self.columns,
            _merge_json(other.metadata, self.metadata),
            {**other.payloads, **self.payloads},
            {**other.attachments, **self.attachments},
        )


def _merge_json(under: bytes, over: bytes) -> bytes:
    """Merge two JSON objects without changing their numbers and strings."""
    if not under or not over:
        return under or over
    return msgspec.json.encode(_members.decode(under) | _members.decode(over))


_members = msgspec.json.Decoder(dict[str, msgspec.Raw])


@dataclass(slots=True)
class RunWrite:
    """A run to write: the values of `IDENTITY_COLUMNS` and its content."""

    identity: Row
    create: RunContent | None = None
    """A create fills gaps, because it may arrive after its update."""
    update: RunContent | None = None
    """An update overwrites."""

    def add(self, content: RunContent, *, is_update: bool) -> None:
        """Add a later operation: an update overwrites, a create fills gaps of earlier creates."""
        if is_update:
            self.update = content if self.update is None else content.over(self.update)
        else:
            self.create = content if self.create is None else self.create.over(content)

    def move(self, identity: Row, content: RunContent) -> None:
        """Give the run the position of its later operation with this content, and its start.

        The start overwrites a stored one also if the stored run already has this position. Without
        one, an earlier start far from the new position is dropped.
        """
        self.identity = identity
        if (start_time := content.columns.get("start_time")) is not None:
            self.add(RunContent({"start_time": start_time}), is_update=True)
            return
        for earlier in (self.create, self.update):
            if earlier is None:
                continue
            start_time = earlier.columns.get("start_time")
            if start_time is not None and is_far_apart(start_time, identity["partition_time"]):
                del earlier.columns["start_time"]

    @property
    def key(self) -> RunKey:
        return self.identity["id"], self.identity["project_id"], self.identity["partition_time"]

    @property
    def merged(self) -> RunContent:
        if self.create is None or self.update is None:
            return self.create or self.update or RunContent()
        return self.update.over(self.create)


@dataclass(slots=True)
class FinishedRun:
    """A run for a bulk load, in the state after post-processing."""

    columns: Row
    """The values of the identity, of `RunContent.columns`, `metadata` and `attachments` as JSON,
    and the totals of the descendants as `sum_...`."""
    payloads: Mapping[Payload, bytes]
    """As returned by `RunStore.compress`."""
    terms: RunTerms
    """As returned by `filters.terms.extract_terms`."""
