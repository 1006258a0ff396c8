"""Requests that are cheap to send and would be costly to serve."""

from __future__ import annotations

import gzip
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

from apps.core.errors import RateLimited
from apps.exports import writers
from apps.exports.errors import WriteFailed
from apps.exports.models import Destination
from apps.ingest import decoders, request_body
from apps.ingest.errors import BadBody

EMPTY_MEMBER = gzip.compress(b"")


def read(rf: Any, body: bytes, encoding: str = "gzip") -> bytes:
    request = rf.post(
        "/runs/batch", body, "application/json", headers={"Content-Encoding": encoding}
    )
    return request_body.read_body(request)


def test_empty_gzip_members_are_refused_in_linear_time(rf: Any) -> None:
    body = EMPTY_MEMBER * 500_000  # 10 MB
    started = time.process_time()

    with pytest.raises(BadBody, match="10000 gzip members"):
        read(rf, body)

    assert time.process_time() - started < 3  # quadratic: minutes


def test_bodies_of_many_members_and_large_members_are_read(rf: Any) -> None:
    parts = [b'{"n": %d}' % number for number in range(5_000)]
    large = bytes(range(256)) * 20_000

    assert read(rf, b"".join(map(gzip.compress, parts))) == b"".join(parts)
    assert read(rf, gzip.compress(large) + gzip.compress(b"end")) == large + b"end"
    with pytest.raises(BadBody, match="truncated"):
        read(rf, gzip.compress(large)[:-9])


def test_attachments_of_a_request_are_limited() -> None:
    decoder = decoders._MultipartDecoder(decoders.IngestRequest())
    run_id = uuid4()

    def add(number: int) -> None:
        name = f"attachment.{run_id}.file{number}"
        decoder.add_part(decoders.FormPart(name, "text/plain", b"x", 1))

    for number in range(decoders.MAX_ATTACHMENTS):
        add(number)
    with pytest.raises(BadBody, match="at most 500 attachments"):
        add(decoders.MAX_ATTACHMENTS)


@pytest.fixture
def dripping_server() -> Iterator[str]:
    """An S3 endpoint that sends a byte of a header now and then, forever."""
    stopped = threading.Event()
    listener = socket.create_server(("127.0.0.1", 0))
    threads: list[threading.Thread] = []

    def drip(connection: socket.socket) -> None:
        with connection:
            try:
                connection.sendall(b"HTTP/1.1 200 OK\r\nX-Slow: ")
                while not stopped.wait(0.05):
                    connection.sendall(b"a")
            except OSError:
                return

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threads.append(threading.Thread(target=drip, args=[connection]))
            threads[-1].start()

    accepting = threading.Thread(target=accept)
    accepting.start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    stopped.set()
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    for thread in (accepting, *threads):
        thread.join()


@pytest.fixture
def destination(settings: Any, dripping_server: str) -> Destination:
    settings.ALLOW_PRIVATE_ADDRESSES = True
    destination = Destination(
        config={"bucket_name": "bucket", "endpoint_url": dripping_server, "region": "us-east-1"}
    )
    destination.set_credentials({"access_key_id": "a", "secret_access_key": "b"})
    return destination


def test_destination_test_ends_at_its_deadline(
    destination: Destination, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writers, "TEST_SECONDS", 0.5)

    # The server never ends its response, so only the deadline ends the call.
    with pytest.raises(WriteFailed, match="did not respond"):
        writers.test_write(destination)


def test_destination_tests_hold_few_threads(
    destination: Destination, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of ten tests at once, the further ones are refused at once with 429."""
    monkeypatch.setattr(writers, "TEST_SECONDS", 1.0)
    results: list[type[Exception]] = []

    def attack() -> None:
        try:
            writers.test_write(destination)
        except (RateLimited, WriteFailed) as error:
            results.append(type(error))

    threads = [threading.Thread(target=attack) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert results.count(WriteFailed) == 2
    assert results.count(RateLimited) == 8
