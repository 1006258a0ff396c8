from __future__ import annotations

import asyncio
import socket
from contextlib import closing

import pytest

from apps.graph_host import wire
from apps.graph_host.wire import Decoder, FrameTooLarge, Link, LinkClosed, encode


def test_a_frame_survives_being_cut_anywhere():
    frames = [["hello", 0, 0, {"a": b"\x00\xff"}], ["events", 1, 0, [["values", b"{}"]]]]
    data = b"".join(encode(frame) for frame in frames)

    for cut in range(len(data) + 1):
        decoder = Decoder()
        assert [*decoder.feed(data[:cut]), *decoder.feed(data[cut:])] == frames


def test_a_frame_above_the_limit_is_refused_at_both_ends(monkeypatch):
    monkeypatch.setattr(wire, "MAX_FRAME_BYTES", 10)

    with pytest.raises(FrameTooLarge):
        encode(["put", b"x" * 10])
    with pytest.raises(FrameTooLarge):
        list(Decoder().feed((11).to_bytes(4, "big")))


@pytest.mark.parametrize("body", [b"\xc1", b"\x01", b"\x90", b"\x91\x01"])
def test_bytes_that_are_no_frame_are_an_error(body):
    with pytest.raises(ValueError):  # msgpack's errors are ValueErrors too
        list(Decoder().feed(len(body).to_bytes(4, "big") + body))


@pytest.fixture
async def pair():
    """Two linked ends with the frames that each received."""
    here, there = socket.socketpair()
    received: dict[str, list] = {"here": [], "there": []}
    ends: dict[str, list] = {"here": [], "there": []}
    left = Link(here, received["here"].append, ends["here"].append)
    right = Link(there, received["there"].append, ends["there"].append)
    with closing(left), closing(right):
        yield left, right, received, ends


async def until(condition):
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0)


async def test_frames_arrive_in_order(pair):
    left, _, received, _ = pair

    for number in range(1000):
        left.send(["n", number])
    await until(lambda: len(received["there"]) == 1000)

    assert received["there"] == [["n", number] for number in range(1000)]


async def test_a_writer_waits_for_a_reader_that_is_behind(pair):
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

    await until(lambda: len(received["there"]) == 8)


async def test_the_end_of_one_end_is_told_to_the_other_and_to_those_who_wait(pair):
    left, right, _, ends = pair
    right.pause()
    for _ in range(8):
        left.send(["x", bytes(512 * 1024)])
    waiting = asyncio.ensure_future(left.drain())
    await asyncio.sleep(0)

    right.close()

    with pytest.raises(LinkClosed):
        await waiting
    await until(lambda: ends["here"])
    assert left.closed


async def test_code_that_blocks_the_loop_can_make_a_round_trip():
    here, there = socket.socketpair()
    received: list = []
    link = Link(here, received.append, lambda _: None)

    def answer():
        with there:
            decoder = Decoder()
            question = next(decoder.feed(there.recv(65536)))
            there.sendall(encode(["other", 1]) + encode(["answer", question[2], True, "yes"]))

    answering = asyncio.get_running_loop().run_in_executor(None, answer)
    frame = link.round_trip(["get", 1, 7], lambda f: f[0] == "answer" and f[1] == 7)
    await answering
    await until(lambda: received)

    assert frame == ["answer", 7, True, "yes"]
    assert received == [["other", 1]]
    link.close()


def test_an_integer_beyond_64_bits_travels_as_a_number():
    frame = ["start", 1, {"metadata": {"a": 10**20, "b": [10**308], "c": 2**64 - 1}}]

    [received] = Decoder().feed(encode(frame))

    assert received == ["start", 1, {"metadata": {"a": 1e20, "b": [1e308], "c": 2**64 - 1}}]
