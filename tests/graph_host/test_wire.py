from __future__ import annotations

import asyncio
import socket
from contextlib import closing

import pytest

from apps.graph_host import wire
from apps.graph_host.wire import Decoder, FrameTooLarge, Link, LinkClosed, encode


def test_a_frame_is_decoded_from_parts_of_any_size():
    frames = [["hello", 0, 0, {"a": b"\x00\xff"}], ["events", 1, 0, [["values", b"{}"]]]]
    data = b"".join(encode(frame) for frame in frames)

    for cut in range(len(data) + 1):
        decoder = Decoder()
        assert [*decoder.feed(data[:cut]), *decoder.feed(data[cut:])] == frames


def test_a_frame_above_the_limit_is_refused_by_encoder_and_decoder(monkeypatch):
    monkeypatch.setattr(wire, "MAX_FRAME_BYTES", 10)

    with pytest.raises(FrameTooLarge):
        encode(["put", b"x" * 10])
    with pytest.raises(FrameTooLarge):
        list(Decoder().feed((11).to_bytes(4, "big")))


@pytest.mark.parametrize("body", [b"\xc1", b"\x01", b"\x90", b"\x91\x01"])
def test_bytes_that_are_not_a_frame_are_rejected(body):
    with pytest.raises(ValueError):  # msgpack's errors are ValueErrors too
        list(Decoder().feed(len(body).to_bytes(4, "big") + body))


@pytest.fixture
async def pair():
    """Two connected links, the frames that each received, and the errors that ended them."""
    here, there = socket.socketpair()
    received: dict[str, list] = {"here": [], "there": []}
    ends: dict[str, list] = {"here": [], "there": []}
    left = Link(here, received["here"].append, ends["here"].append)
    right = Link(there, received["there"].append, ends["there"].append)
    with closing(left), closing(right):
        yield left, right, received, ends


async def wait_until(condition):
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0)


async def test_frames_arrive_in_order(pair):
    left, _, received, _ = pair

    for number in range(1000):
        left.send(["n", number])
    await wait_until(lambda: len(received["there"]) == 1000)

    assert received["there"] == [["n", number] for number in range(1000)]


async def test_what_was_handled_is_reported_for_many_reads_at_once(monkeypatch):
    here, there = socket.socketpair()
    frames, reports = [], []
    link = Link(
        here, frames.append, lambda _: None, on_handled=lambda *report: reports.append(report)
    )
    data = wire.encode(["n", 1])

    async def send(count):
        for _ in range(count):
            there.sendall(data)
            expected = len(frames) + 1
            await wait_until(lambda expected=expected: len(frames) == expected)

    with closing(link), closing(there):
        monkeypatch.setattr(wire, "_REPORT_SECONDS", 3600)
        await send(100)
        monkeypatch.setattr(wire, "_REPORT_SECONDS", 0)
        await send(1)

    # The first read is reported at once: its sender takes part in the division of time.
    assert [size for size, _ in reports] == [len(data), 100 * len(data)]
    assert all(seconds > 0 for _, seconds in reports)


async def test_a_writer_waits_for_a_slow_reader(pair):
    left, right, received, _ = pair
    right.pause()

    for _ in range(8):
        left.send(["x", bytes(512 * 1024)])
    waiting = asyncio.ensure_future(left.drain())
    await asyncio.sleep(0.05)
    assert left.is_full
    assert not waiting.done()
    right.resume()
    await waiting

    await wait_until(lambda: len(received["there"]) == 8)


async def test_closing_one_link_ends_the_other_and_its_waiting_writers(pair):
    left, right, _, ends = pair
    right.pause()
    for _ in range(8):
        left.send(["x", bytes(512 * 1024)])
    waiting = asyncio.ensure_future(left.drain())
    await asyncio.sleep(0)

    right.close()

    with pytest.raises(LinkClosed):
        await waiting
    await wait_until(lambda: ends["here"])
    assert left.closed


async def test_a_round_trip_works_while_the_loop_is_blocked():
    here, there = socket.socketpair()
    received: list = []
    link = Link(here, received.append, lambda _: None)

    def answer():
        with there:
            decoder = Decoder()
            request = next(decoder.feed(there.recv(65536)))
            there.sendall(encode(["other", 1]) + encode(["answer", request[2], True, "yes"]))

    answering = asyncio.get_running_loop().run_in_executor(None, answer)
    frame = link.round_trip(["get", 1, 7], lambda f: f[0] == "answer" and f[1] == 7)
    await answering
    await wait_until(lambda: received)

    assert frame == ["answer", 7, True, "yes"]
    assert received == [["other", 1]]
    link.close()


def test_an_integer_beyond_64_bits_is_sent_as_a_float():
    frame = ["start", 1, {"metadata": {"a": 10**20, "b": [10**308], "c": 2**64 - 1}}]

    [received] = Decoder().feed(encode(frame))

    assert received == ["start", 1, {"metadata": {"a": 1e20, "b": [1e308], "c": 2**64 - 1}}]


async def test_a_paused_link_keeps_frames_that_had_arrived_for_later(pair):
    left, right, received, _ = pair
    right._on_frame = lambda frame: (received["there"].append(frame), right.pause())

    left.send(["n", 1])
    left.send(["n", 2])
    left.send(["n", 3])
    await wait_until(lambda: received["there"] == [["n", 1]])
    for _ in range(10):
        await asyncio.sleep(0)
    assert received["there"] == [["n", 1]]

    right.resume()
    await wait_until(lambda: received["there"] == [["n", 1], ["n", 2]])


async def test_a_link_closes_when_its_peer_leaves_too_much_unread():
    here, there = socket.socketpair()
    ends: list[BaseException | None] = []
    link = Link(here, lambda _: None, ends.append, max_unsent_bytes=1000)

    link.send(["n", b"x" * 500])
    assert not link.closed
    link.send(["n", b"x" * 600])

    assert link.closed
    assert [type(end) for end in ends] == [BufferError]
    there.close()


def test_a_number_is_not_accepted_as_bytes():
    with pytest.raises(TypeError):
        wire.as_bytes(10)

    assert wire.as_bytes(b"10") == b"10"
