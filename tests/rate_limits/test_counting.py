"""CountRequest is exact, costs one round trip, and does without Redis."""

from __future__ import annotations

import os
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
import redis

from apps.core import metrics
from apps.rate_limits import cache, checks, counters
from apps.rate_limits.identity import Identity, address_identity
from apps.rate_limits.row_matching import CATCH_ALL, row_for
from apps.rate_limits.table import IdentityKind
from tests.factories.organizations import OrganizationFactory

pytestmark = pytest.mark.usefixtures("limits")

QUERY = row_for("POST", "/runs/query", IdentityKind.KEY)


def nobody(value: str) -> Identity:
    return Identity(IdentityKind.KEY, value)


def test_a_count_is_one_round_trip(settings):
    counters.count(QUERY, nobody("warm"))
    client = redis.Redis.from_url(settings.REDIS_URL)
    sent: list[tuple[object, ...]] = []
    link = cache._link_to(settings.REDIS_URL)
    kept = link._round_trip
    link._round_trip = lambda connection, command: (  # type: ignore[method-assign]
        sent.append(command),
        kept(connection, command),
    )[1]
    try:
        first = counters.count(QUERY, nobody("one"))
        second = counters.count(QUERY, nobody("one"))
    finally:
        del link._round_trip
        client.close()

    assert [command[0] for command in sent] == ["EVALSHA", "EVALSHA"]
    assert (first.count, second.count) == (1, 2)


def test_a_redis_that_forgot_the_script_is_told_it_again(settings):
    counters.count(QUERY, nobody("forgetful"))
    redis.Redis.from_url(settings.REDIS_URL).script_flush()

    assert counters.count(QUERY, nobody("forgetful")).count == 2


def test_concurrent_threads_are_each_counted_once():
    start = threading.Barrier(8)

    def drive(_: int) -> list[int]:
        start.wait()
        return [counters.count(QUERY, nobody("crowd")).count for _ in range(50)]

    with ThreadPoolExecutor(8) as pool:
        counts = [count for found in pool.map(drive, range(8)) for count in found]

    assert sorted(counts) == [*range(1, 401)]


def test_a_counter_goes_away_by_itself(settings, monkeypatch):
    monkeypatch.setattr("django_ratelimit.core.EXPIRATION_FUDGE", 5)
    client = redis.Redis.from_url(settings.REDIS_URL)

    counters.count(QUERY, nobody("brief"))

    keys = list(client.scan_iter("rl:*"))
    assert [0 < client.ttl(key) <= 15 for key in keys] == [True]


def unchecked(category: str) -> float:
    return metrics.limits.labels(category, "unchecked")._value.get()


@pytest.fixture
def away(settings):
    """A Redis that nobody answers for."""
    settings.CACHES = {
        **settings.CACHES,
        "rate_limits": {
            "BACKEND": "apps.rate_limits.cache.CountingCache",
            "LOCATION": f"unix://{os.devnull}.nobody.sock?db=0",
        },
    }


def test_without_redis_requests_pass_and_are_counted_in_a_metric(away):
    before = unchecked(CATCH_ALL.category)

    found = [checks.taken(CATCH_ALL, address_identity("192.0.2.1")) for _ in range(3)]

    assert found == [None, None, None]
    assert unchecked(CATCH_ALL.category) == before + 3


def test_a_redis_that_is_away_is_left_alone_for_a_moment(away, monkeypatch):
    asked = Counter[str]()
    monkeypatch.setattr(
        cache._Link,
        "_round_trip",
        staticmethod(lambda *_: _fail(asked)),
    )

    for _ in range(5):
        checks.taken(CATCH_ALL, address_identity("192.0.2.2"))

    assert asked["round trips"] <= 1


def _fail(asked: Counter[str]) -> None:
    asked["round trips"] += 1
    raise redis.TimeoutError


def test_a_limit_says_what_is_left_and_what_was_too_much():
    usages = [counters.count(QUERY, nobody("last")) for _ in range(16)]

    assert [usage.is_over for usage in usages] == [False] * 15 + [True]
    assert usages[14].headers()["X-RateLimit-Remaining"] == "0"
    assert "Retry-After" not in usages[14].headers()
    assert int(usages[15].headers()["Retry-After"]) >= 1


@pytest.mark.django_db
def test_a_factor_moves_the_limit_and_not_the_counter():
    who = Identity(IdentityKind.KEY, "scaled", OrganizationFactory().pk)

    before = [counters.count(QUERY, who) for _ in range(16)]
    raised, lowered = counters.count(QUERY, who, 2.0), counters.count(QUERY, who, 0.01)

    assert before[-1].is_over
    assert (raised.limit, raised.count, raised.is_over) == (30, 17, False)
    assert (lowered.limit, lowered.count, lowered.is_over) == (1, 18, True)
