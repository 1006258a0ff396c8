"""A frame of a malicious graph host costs its worker little memory and time."""

from __future__ import annotations

import random
import socket
import time
import tracemalloc
from typing import Any

import msgpack
import pytest

from apps.core.json import loads_small
from apps.graph_host.frame_limits import MAX_DEPTH, FrameTooComplex, check_structure
from apps.graph_host.wire import MALFORMED, Decoder, Link, encode

MB = 1_048_576


def frame(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


def array_of(element: bytes, count: int) -> bytes:
    return b"\x92\xa6events\xdd" + count.to_bytes(4, "big") + element * count


BOMBS = {
    "8 MB of empty maps": array_of(b"\x80", 8 * MB),
    "8 MB of empty arrays": array_of(b"\x90", 8 * MB),
    "short strings": array_of(b"\xa2ab", 2 * MB),
    "timestamps": array_of(b"\xd6\xff\0\0\0\1", MB),
    "maps in arrays": array_of(b"\x9f" + b"\x80" * 15, 500_000),
    "announced elements": b"\x92\xa6events\xdd\xff\xff\xff\xff" + bytes(70_000),
    "deep arrays": b"\x92\xa6events" + b"\x91" * 100_000 + b"\x90",
}


@pytest.mark.parametrize("name", BOMBS)
def test_frame_with_too_many_elements_is_refused_undecoded(name: str) -> None:
    data = frame(BOMBS[name])
    decoder = Decoder()
    started = time.process_time()

    with pytest.raises(FrameTooComplex):
        list(decoder.feed(data))

    assert time.process_time() - started < 0.5  # the 8 MB frame took a second, and 570 MB


def test_refused_frame_allocates_little_more_than_its_bytes() -> None:
    data = frame(BOMBS["8 MB of empty maps"])
    tracemalloc.start()
    with pytest.raises(FrameTooComplex):
        list(Decoder().feed(data))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert peak < 40 * MB  # the buffered frame and its copies


def test_deep_frame_below_the_checked_size_is_refused_by_the_decoder() -> None:
    body = b"\x92\xa6events" + b"\x91" * 2_000 + b"\x90"

    with pytest.raises(MALFORMED):
        list(Decoder().feed(frame(body)))


def random_value(source: random.Random, depth: int) -> Any:
    kind = source.randrange(9 if depth else 6)
    if kind < 6:
        blob = source.randbytes(source.choice([0, 1, 31, 40, 300, 70_000]))
        number = source.choice([0, -1, -40, 127, 200, 70_000, 2**33, -(2**40), 1.5])
        return [None, True, number, blob, blob.hex(), msgpack.ExtType(5, blob[:300])][kind]
    count = source.choice([0, 1, 14, 17])
    if kind == 6:
        return {str(n): random_value(source, depth - 1) for n in range(count)}
    return [random_value(source, depth - 1) for _ in range(count)]


def count_elements(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + sum(1 + count_elements(member) for member in value.values())
    if isinstance(value, list):
        return 1 + sum(map(count_elements, value))
    return 1


@pytest.mark.parametrize("seed", range(20))
def test_elements_are_counted_exactly(seed: int) -> None:
    value = ["put", random_value(random.Random(seed), 2), list(range(100_000, 120_000))]
    body = msgpack.packb(value)
    count = count_elements(value)

    check_structure(body, count)
    with pytest.raises(FrameTooComplex):
        check_structure(body, count - 1)


def test_depth_is_limited() -> None:
    check_structure(b"\x91" * (MAX_DEPTH - 1) + b"\x01")
    with pytest.raises(FrameTooComplex):
        check_structure(b"\x91" * (MAX_DEPTH + 1) + b"\x01")


def test_large_legitimate_frames_pass() -> None:
    checkpoint = ["put", 1, 2, "thread", "", "id", None, "msgpack", bytes(30 * MB), b"{}", {}, []]
    events = ["events", 1, 0, [["values", b"{}" * 50]] * 20_000]
    decoder = Decoder()

    assert list(decoder.feed(encode(checkpoint) + encode(events))) == [checkpoint, events]


async def test_violation_closes_the_link_with_its_reason() -> None:
    worker_end, host_end = socket.socketpair()
    reasons: list[BaseException | None] = []
    link = Link(worker_end, lambda _: None, reasons.append)

    link._handle(frame(BOMBS["short strings"]))

    assert link.closed
    assert [str(reason) for reason in reasons] == ["A message has more than 262144 elements."]
    host_end.close()


def test_large_json_of_agent_code_is_not_decoded() -> None:
    with pytest.raises(ValueError, match="more than"):
        loads_small(b"[" + b"{}," * 400_000 + b"{}]")
