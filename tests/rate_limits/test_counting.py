"""Counting is exact, takes one round trip, and fails open without Redis."""

from __future__ import annotations

import os
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
import redis

from apps.core.observability import metrics
from apps.rate_limits import cache, counters, enforcement
from apps.rate_limits.identity import Identity, address_identity
from apps.rate_limits.row_matching import CATCH_ALL, row_for
from apps.rate_limits.table import IdentityKind
from tests.factories.organizations import OrganizationFactory

pytestmark = pytest.mark.usefixtures("limits", "stopped_clock")

QUERY = row_for("POST", "/runs/query", IdentityKind.KEY)


def identity(value: str) -> Identity:
    return Identity(IdentityKind.KEY, value)


def test_count_takes_one_round_trip(settings):
    counters.count(QUERY, identity("warm"))
    client = redis.Redis.from_url(settings.REDIS_URL)
    sent: list[tuple[object, ...]] = []
    redis_connection = cache._connection_to(settings.REDIS_URL)
    original = redis_connection._round_trip
    redis_connection._round_trip = lambda connection, command: (  # type: ignore[method-assign]
        sent.append(command),
        original(connection, command),
    )[1]
    try:
        first = counters.count(QUERY, identity("one"))
        second = counters.count(QUERY, identity("one"))
    finally:
        del redis_connection._round_trip
        client.close()

    assert [command[0] for command in sent] == ["EVALSHA", "EVALSHA"]
    assert (first.count, second.count) == (1, 2)


def test_script_is_sent_again_after_a_redis_restart(settings):
    counters.count(QUERY, identity("forgetful"))
    redis.Redis.from_url(settings.REDIS_URL).script_flush()

    assert counters.count(QUERY, identity("forgetful")).count == 2


def test_concurrent_threads_are_each_counted_once():
    start = threading.Barrier(8)

    def drive(_: int) -> list[int]:
        start.wait(60)
        return [counters.count(QUERY, identity("crowd")).count for _ in range(50)]

    with ThreadPoolExecutor(8) as pool:
        counts = [count for results in pool.map(drive, range(8)) for count in results]

    assert sorted(counts) == [*range(1, 401)]


def test_counter_expires(settings, monkeypatch):
    monkeypatch.setattr("django_ratelimit.core.EXPIRATION_FUDGE", 5)
    client = redis.Redis.from_url(settings.REDIS_URL)

    counters.count(QUERY, identity("brief"))

    keys = list(client.scan_iter("rl:*"))
    assert [0 < client.ttl(key) <= 15 for key in keys] == [True]


def count_unchecked(category: str) -> float:
    return metrics.limits.labels(category, "unchecked")._value.get()


@pytest.fixture
def missing_redis(settings):
    """A Redis address without a server."""
    settings.CACHES = {
        **settings.CACHES,
        "rate_limits": {
            "BACKEND": "apps.rate_limits.cache.CountingCache",
            "LOCATION": f"unix://{os.devnull}.missing.sock?db=0",
        },
    }


def test_without_redis_requests_pass_and_are_counted_in_a_metric(missing_redis):
    initial_count = count_unchecked(CATCH_ALL.category)

    results = [enforcement.consume(CATCH_ALL, address_identity("192.0.2.1")) for _ in range(3)]

    assert results == [None, None, None]
    assert count_unchecked(CATCH_ALL.category) == initial_count + 3


def test_unavailable_redis_is_not_called_for_a_second(missing_redis, monkeypatch):
    attempts = Counter[str]()
    monkeypatch.setattr(
        cache._ThreadConnections,
        "_round_trip",
        staticmethod(lambda *_: _fail(attempts)),
    )

    for _ in range(5):
        enforcement.consume(CATCH_ALL, address_identity("192.0.2.2"))

    assert attempts["round trips"] <= 1


def _fail(attempts: Counter[str]) -> None:
    attempts["round trips"] += 1
    raise redis.TimeoutError


def test_headers_report_remaining_and_exceeded_requests():
    usages = [counters.count(QUERY, identity("last")) for _ in range(16)]

    assert [usage.is_over for usage in usages] == [False] * 15 + [True]
    assert usages[14].headers()["X-RateLimit-Remaining"] == "0"
    assert "Retry-After" not in usages[14].headers()
    assert int(usages[15].headers()["Retry-After"]) >= 1


@pytest.mark.django_db
def test_factor_scales_the_limit_and_not_the_counter():
    scaled_identity = Identity(IdentityKind.KEY, "scaled", OrganizationFactory().pk)

    usages = [counters.count(QUERY, scaled_identity) for _ in range(16)]
    raised, lowered = (
        counters.count(QUERY, scaled_identity, 2.0),
        counters.count(QUERY, scaled_identity, 0.01),
    )

    assert usages[-1].is_over
    assert (raised.limit, raised.count, raised.is_over) == (30, 17, False)
    assert (lowered.limit, lowered.count, lowered.is_over) == (1, 18, True)


def test_reconnecting_still_works_after_hundreds_of_failed_connections(tmp_path, monkeypatch):
    monkeypatch.setattr(cache, "RECONNECT_AFTER_SECONDS", 0)
    connections = cache._ThreadConnections(f"unix://{tmp_path}/missing.sock")

    for _ in range(250):
        with pytest.raises(redis.ConnectionError) as failure:
            connections.execute("PING")
        assert not isinstance(failure.value, redis.MaxConnectionsError)
