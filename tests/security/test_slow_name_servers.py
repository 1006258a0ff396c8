"""Names whose server does not answer delay only the names of their own organization."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from ipaddress import ip_address
from uuid import UUID, uuid4

import pytest

from apps.core import ssrf
from apps.core.name_resolver import NotStarted, Resolver
from apps.webhooks import policy, resolution
from apps.webhooks.policy import WebhookBlocked, WebhookPolicy

WAIT_SECONDS = 60
START_SECONDS = 2
"""Until a thread has surely begun, on a busy machine too."""


@pytest.fixture
def released() -> Iterator[threading.Event]:
    """The slow name server answers when the event is set."""
    event = threading.Event()
    yield event
    event.set()


class SlowNameServer:
    """Answers for names of `evil.example` when the event is set, and for others at once."""

    def __init__(self, released: threading.Event) -> None:
        self.released = released
        self.asked: list[str] = []

    def resolve(self, host: str) -> list[ssrf.IPAddress]:
        self.asked.append(host)
        if host.endswith("evil.example"):
            assert self.released.wait(WAIT_SECONDS)
        return [ip_address("192.0.2.1")]


@pytest.fixture
def name_server(monkeypatch: pytest.MonkeyPatch, released: threading.Event) -> SlowNameServer:
    server = SlowNameServer(released)
    monkeypatch.setattr(ssrf, "resolve", server.resolve)
    return server


async def test_slow_names_of_one_organization_do_not_delay_those_of_another(
    name_server: SlowNameServer,
) -> None:
    resolver, slow_tenant, other = Resolver(threads=4, threads_per_owner=3), uuid4(), uuid4()

    def look_up(host: str, owner_id: UUID) -> asyncio.Task[list[ssrf.IPAddress]]:
        return asyncio.create_task(resolver.resolve_async(host, WAIT_SECONDS, owner_id))

    slow = [look_up(f"{number}.evil.example", slow_tenant) for number in range(50)]
    for number in range(20):
        assert await look_up(f"{number}.example", other) == [ip_address("192.0.2.1")]

    # The names of the slow tenant wait for a thread of that tenant, the others for none.
    asked_slow = {name for name in name_server.asked if name.endswith("evil.example")}
    assert asked_slow == {f"{number}.evil.example" for number in range(3)}
    assert len(name_server.asked) == 23
    assert not any(task.done() for task in slow)
    name_server.released.set()
    assert await asyncio.gather(*slow) == [[ip_address("192.0.2.1")]] * 50
    resolver._pool.shutdown()  # a thread counts itself free after it gave its result
    assert resolver._held == {}
    assert resolver._waiting == {}


async def test_names_whose_caller_gave_up_are_not_resolved(name_server: SlowNameServer) -> None:
    resolver, tenant = Resolver(threads=2, threads_per_owner=1), uuid4()
    slow = asyncio.create_task(resolver.resolve_async("a.evil.example", WAIT_SECONDS, tenant))
    await asyncio.sleep(0)

    with pytest.raises(ssrf.ResolutionFailed):
        await resolver.resolve_async("b.example", 0.01, tenant)
    name_server.released.set()
    await slow

    assert await resolver.resolve_async("c.example", WAIT_SECONDS, tenant)
    assert name_server.asked == ["a.evil.example", "c.example"]


def test_name_without_a_free_thread_is_no_failed_name(name_server: SlowNameServer) -> None:
    resolver, tenant = Resolver(threads=2, threads_per_owner=1), uuid4()

    with pytest.raises(ssrf.ResolutionFailed):
        resolver.resolve("a.evil.example", START_SECONDS, tenant)
    with pytest.raises(NotStarted):
        resolver.resolve("b.example", 0.01, tenant)

    assert resolver.resolve("c.example", WAIT_SECONDS, uuid4()) == [ip_address("192.0.2.1")]


def test_webhook_whose_name_has_no_thread_is_accepted(
    monkeypatch: pytest.MonkeyPatch, name_server: SlowNameServer
) -> None:
    """Its deliveries check the address again."""
    monkeypatch.setattr(resolution, "TIMEOUT_SECONDS", START_SECONDS)
    monkeypatch.setattr(resolution, "_resolver", Resolver(threads=2, threads_per_owner=1))
    tenant = uuid4()

    with pytest.raises(WebhookBlocked, match="cannot be resolved"):
        policy.validate("https://a.evil.example/", WebhookPolicy(), tenant)

    monkeypatch.setattr(resolution, "TIMEOUT_SECONDS", 0.01)
    url = "https://b.example/"
    assert policy.validate(url, WebhookPolicy(), tenant) == url
    with pytest.raises(WebhookBlocked, match="private network"):
        policy.validate("http://127.0.0.1/", WebhookPolicy(), tenant)
