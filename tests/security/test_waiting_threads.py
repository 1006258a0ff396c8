"""Requests that wait for a server of the tenant hold few threads of a web process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from uuid import UUID

import pytest

from apps.core import ssrf
from apps.core.errors import RateLimited
from apps.webhooks import delivery_request, policy, resolution, signed_request
from apps.webhooks.delivery_request import DeliveryResult
from apps.webhooks.policy import WebhookBlocked, WebhookPolicy

ATTEMPTS = 12
OWNER = UUID(int=1)
WAIT_SECONDS = 60


@pytest.fixture
def released() -> Iterator[threading.Event]:
    """The slow server answers when the event is set."""
    event = threading.Event()
    yield event
    event.set()


def outcomes(futures: list[Future[object]], expected: int) -> list[Future[object]]:
    """Wait until that many have ended, while the others wait for the slow server."""
    done: set[Future[object]] = set()
    deadline = threading.Event()
    for _ in range(WAIT_SECONDS * 10):
        done = {future for future in futures if future.done()}
        if len(done) >= expected:
            break
        deadline.wait(0.1)
    assert len(done) == expected
    return list(done)


def test_name_servers_that_do_not_answer_hold_two_threads(
    monkeypatch: pytest.MonkeyPatch, released: threading.Event
) -> None:
    """Every run, cron and webhook may name an address, whose name server may be the tenant's."""

    def resolve(host: str, _: object) -> list[ssrf.IPAddress]:
        assert released.wait(WAIT_SECONDS)
        raise ssrf.ResolutionFailed(host)

    monkeypatch.setattr(resolution, "resolve", resolve)
    with ThreadPoolExecutor(ATTEMPTS) as pool:
        futures: list[Future[object]] = [
            pool.submit(policy.validate, f"https://{number}.evil.example/", WebhookPolicy())
            for number in range(ATTEMPTS)
        ]
        done = outcomes(futures, ATTEMPTS - 2)
        # Addresses need no name server, so they are checked at any time.
        with pytest.raises(WebhookBlocked):
            policy.validate("http://169.254.169.254/", WebhookPolicy())
        released.set()
        wait(futures, WAIT_SECONDS)

    assert all(future.exception() is None for future in done)
    late = [future.exception() for future in futures if future not in done]
    assert [type(error) for error in late] == [WebhookBlocked, WebhookBlocked]


def test_tests_of_webhooks_hold_two_threads(
    monkeypatch: pytest.MonkeyPatch, released: threading.Event
) -> None:
    async def send(*_: object, **__: object) -> DeliveryResult:
        assert released.wait(WAIT_SECONDS)
        return DeliveryResult(200)

    monkeypatch.setattr(delivery_request, "send", send)
    request = signed_request.build_signed_request("https://a.example/", {}, None, "msg_test", b"")
    with ThreadPoolExecutor(ATTEMPTS) as pool:
        futures: list[Future[object]] = [
            pool.submit(signed_request.send_once, request, owner_id=OWNER) for _ in range(ATTEMPTS)
        ]
        done = outcomes(futures, ATTEMPTS - 2)
        released.set()
        wait(futures, WAIT_SECONDS)

    assert {type(future.exception()) for future in done} == {RateLimited}
    assert [future.result() for future in futures if future not in done] == [
        DeliveryResult(200)
    ] * 2
    assert signed_request.send_once(request, owner_id=OWNER) == DeliveryResult(200)
