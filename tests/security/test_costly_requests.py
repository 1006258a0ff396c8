"""Requests that are cheap to send and would be costly to serve."""

from __future__ import annotations

import gzip
import socket
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from apps.core.errors import RateLimited
from apps.exports import runner, s3_writer, writers
from apps.exports.errors import WriteFailed
from apps.exports.models import BulkExport, Destination, DestinationKind, ExportPart
from apps.ingest import decoders, request_body
from apps.ingest.errors import BadBody
from apps.organizations.models import Workspace
from apps.tracing.services import ensure_project
from tests.factories.organizations import WorkspaceFactory

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


@contextmanager
def serving(answer: Callable[[socket.socket], None]) -> Iterator[str]:
    """Run a server that answers each connection in a thread; yield its address."""
    listener = socket.create_server(("127.0.0.1", 0))
    threads: list[threading.Thread] = []

    def respond(connection: socket.socket) -> None:
        with connection, suppress(OSError):  # the client has left
            answer(connection)

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threads.append(threading.Thread(target=respond, args=[connection]))
            threads[-1].start()

    accepting = threading.Thread(target=accept)
    accepting.start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    for thread in (accepting, *threads):
        thread.join()


@pytest.fixture
def dripping_server() -> Iterator[str]:
    """An S3 endpoint that sends a byte of a header now and then, forever."""
    stopped = threading.Event()

    def drip(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nX-Slow: ")
        while not stopped.wait(0.05):
            connection.sendall(b"a")

    with serving(drip) as url:
        yield url
        stopped.set()


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


def test_file_of_an_export_ends_at_its_deadline(
    destination: Destination, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It holds a thread of the worker; a timeout of the socket restarts with each byte."""
    monkeypatch.setattr(writers, "_WRITE_SECONDS", 0.5)
    writer = writers.create_writer(destination)

    with pytest.raises(WriteFailed, match="did not respond"):
        writers.write(writer, "file", b"content")


@pytest.fixture
def flooding_server() -> Iterator[str]:
    """An S3 endpoint that answers each request with bytes without end."""

    def flood(connection: socket.socket) -> None:
        connection.recv(65_536)
        connection.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
        while True:
            connection.sendall(bytes(65_536))

    with serving(flood) as url:
        yield url


def test_response_without_end_takes_little_memory(settings: Any, flooding_server: str) -> None:
    settings.ALLOW_PRIVATE_ADDRESSES = True
    config = {"bucket_name": "bucket", "endpoint_url": flooding_server, "region": "us-east-1"}
    destination = Destination(config=config)
    destination.set_credentials({"access_key_id": "a", "secret_access_key": "b"})
    writer = writers.create_writer(destination)

    tracemalloc.start()
    with pytest.raises(WriteFailed, match="more than 1048576 bytes"):
        writer.put("file", b"content")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert peak < 16 * s3_writer.MAX_RESPONSE_BYTES


@pytest.mark.django_db
def test_exports_of_an_organization_hold_one_thread_of_a_worker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Eight slices run at the same time, as by the threads of a worker."""
    attacker = WorkspaceFactory()
    sibling = WorkspaceFactory(organization=attacker.organization)
    others = [WorkspaceFactory() for _ in range(3)]
    for workspace in (attacker, sibling, attacker, *others):
        create_part(workspace)
    held: list[list[UUID]] = []
    open_parts: list[UUID] = []

    def hold(part: ExportPart, _: float) -> None:
        open_parts.append(part.workspace.organization_id)
        held.append([*open_parts])
        if len(held) < 8:
            runner.run_slice(seconds=60)
        open_parts.pop()

    monkeypatch.setattr(runner, "_run_part", hold)
    runner.run_slice(seconds=60)

    assert max(map(len, held)) == runner.MAX_CONCURRENT
    assert all(len(set(organizations)) == len(organizations) for organizations in held)
    assert len(held) == 6


def create_part(workspace: Workspace) -> None:
    """Create an export that has one part."""
    day = datetime(2026, 3, 1, tzinfo=UTC)
    destination = Destination(workspace=workspace, name="d", kind=DestinationKind.PLATFORM)
    destination.save(force_insert=True)
    project = ensure_project(workspace.pk, f"exported {uuid4()}")
    export = BulkExport(
        workspace=workspace, destination=destination, project=project, start_time=day
    )
    export.save(force_insert=True)
    ExportPart.objects.for_workspace(workspace).create(
        workspace=workspace, export=export, start_time=day, end_time=day + timedelta(days=1)
    )
