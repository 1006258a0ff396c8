"""The term index `trace_store_run_terms`, filled by post-processing."""

# ruff: noqa: S608  (statements consist of own names; values are parameters)

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import chain
from string import ascii_letters, digits
from uuid import UUID
from zlib import crc32

from apps.core.connections import raw_cursor, sql
from apps.trace_store.filters.subjects import FilterSubject
from apps.trace_store.filters.terms import WORD_MARKS, RunTerms, extract_terms
from apps.trace_store.postgres.reading import lookup
from apps.trace_store.types import ChangedRun, Payload, RunDetail, RunKey

_HEADER = struct.Struct(">5i")
_INTEGER_OID = 23
_KEYS = "unnest(%s::uuid[], %s::uuid[], %s::timestamptz[]) AS k(id, project_id, partition_time)"


def salt_terms(workspace_id: UUID, terms: Iterable[int]) -> list[int]:
    """Salt the hashes by workspace, so that index lists of workspaces do not overlap."""
    salt = crc32(workspace_id.bytes) - 2**31
    return [term ^ salt for term in terms]


def salted_marks(workspace_id: UUID) -> dict[str, str]:
    """What the index has in place of the mark or slash in front of a word, for the same reason."""
    first, second = divmod(crc32(workspace_id.bytes) % (len(_LETTERS) * _SALTS), _SALTS)
    marks = {
        mark: _LETTERS[first] + _LETTERS[second * len(_MARKS) + number]
        for number, mark in enumerate(_MARKS)
    }
    return {**marks, "/": f"{marks[_MARKS[0]]}/"}


_MARKS = sorted(set(WORD_MARKS.values()))
_LETTERS = sorted(ascii_letters + digits)
_SALTS = len(_LETTERS) // len(_MARKS)


def write_terms(workspace_id: UUID, terms: Sequence[tuple[RunKey, RunTerms]]) -> None:
    """Replace the terms of the runs. The caller is the workspace's only writer of terms."""
    if not terms:
        return
    keys = [key for key, _ in terms]
    times = [key[2] for key in keys]
    with raw_cursor() as cursor:
        cursor.execute(
            sql(
                f"DELETE FROM trace_store_run_terms t USING {_KEYS} WHERE t.workspace_id = %s"
                " AND t.project_id = k.project_id AND t.partition_time = k.partition_time AND"
                " t.id = k.id"
                " AND t.partition_time BETWEEN %s AND %s"
            ),
            [
                [key[0] for key in keys],
                [key[1] for key in keys],
                times,
                workspace_id,
                min(times),
                max(times),
            ],
        )
    copy_terms(
        (
            workspace_id,
            project_id,
            partition_time,
            run_id,
            *encode_terms(workspace_id, run_terms),
        )
        for (run_id, project_id, partition_time), run_terms in terms
    )


def copy_terms(rows: Iterable[tuple[UUID, UUID, datetime, UUID, bytes, bytes]]) -> None:
    """Append rows that do not exist yet."""
    statement = (
        "COPY trace_store_run_terms (workspace_id, project_id, partition_time, id, terms, words)"
        " FROM STDIN (FORMAT binary)"
    )
    with raw_cursor() as cursor, cursor.copy(sql(statement)) as copy:
        copy.set_types(["uuid", "uuid", "timestamptz", "uuid", "bytea", "bytea"])
        for row in rows:
            copy.write_row(row)


def encode_terms(workspace_id: UUID, terms: RunTerms) -> tuple[bytes, bytes]:
    """Encode the hashes as an integer array and the words as a `tsvector`, in binary format."""
    return (
        _encode_integers(salt_terms(workspace_id, terms.hashes)),
        _encode_words(salted_marks(workspace_id), terms.words),
    )


def _encode_integers(values: Sequence[int]) -> bytes:
    size = len(values)
    if not size:
        return _EMPTY
    members = struct.pack(f">{2 * size}i", *chain.from_iterable((4, value) for value in values))
    return _HEADER.pack(1, 0, _INTEGER_OID, size, 1) + members


def _encode_words(marks: Mapping[str, str], words: Sequence[str]) -> bytes:
    # Each word ends with a zero byte and the number of its positions, which is zero.
    text = "".join([f"{marks[word[0]]}{word[1:]}\0\0\0" for word in words])
    return struct.pack(">I", len(words)) + text.encode("utf-8", "replace")


_EMPTY = struct.pack(">3i", 0, 0, _INTEGER_OID)


CONTENT = frozenset({Payload.INPUTS, Payload.OUTPUTS, Payload.ERROR})
_BATCH_SIZE = 200
"""Limit of runs whose payloads are in memory at once; a run may have 25 MB."""


def index_runs(workspace_id: UUID, changed_runs: Sequence[ChangedRun]) -> None:
    """Replace the terms of the changed runs. Safe to repeat."""
    index_keys(
        workspace_id, [(run.run_id, run.project_id, run.partition_time) for run in changed_runs]
    )


def index_keys(workspace_id: UUID, keys: Sequence[RunKey]) -> None:
    for begin in range(0, len(keys), _BATCH_SIZE):
        batch = keys[begin : begin + _BATCH_SIZE]
        runs = lookup.fetch_by_keys(workspace_id, batch, payloads=CONTENT)
        write_terms(workspace_id, [(_key(run), extract_terms(_subject(run))) for run in runs])


def _key(run: RunDetail) -> RunKey:
    return run.row.id, run.row.project_id, run.row.partition_time


def _subject(run: RunDetail) -> FilterSubject:
    return FilterSubject(
        run=run.row,
        inputs=run.stored(Payload.INPUTS),
        outputs=run.stored(Payload.OUTPUTS),
        error=run.stored(Payload.ERROR),
    )
