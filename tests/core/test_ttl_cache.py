"""The cache of values with a time to live."""

from __future__ import annotations

import pytest

from apps.core import ttl_cache
from apps.core.ttl_cache import TTLCache


class Clock:
    now = 0.0

    def monotonic(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(ttl_cache, "time", clock)
    return clock


@pytest.fixture
def lookups():
    return []


@pytest.fixture
def look_up(lookups):
    def record_lookup(key):
        lookups.append(key)
        return f"{key}{len(lookups)}"

    return record_lookup


def test_fresh_value_is_looked_up_once(clock, look_up, lookups):
    cache = TTLCache(3.0)

    values = [cache.get("a", look_up), cache.get("b", look_up), cache.get("a", look_up)]

    assert (values, lookups) == (["a1", "b2", "a1"], ["a", "b"])
    assert ("a" in cache, "c" in cache, cache.peek("b"), cache.peek("c")) == (
        True,
        False,
        "b2",
        None,
    )


def test_one_caller_renews_while_others_use_the_old_value(clock, lookups):
    cache = TTLCache(3.0)
    stale_values = []

    def renew_slowly(key):
        stale_values.append(cache.get(key, pytest.fail))
        return "new"

    cache.get("a", lambda _: "old")
    clock.now = 2.5

    assert (cache.get("a", renew_slowly), stale_values, cache.get("a", pytest.fail)) == (
        "new",
        ["old"],
        "new",
    )


def test_expired_value_is_looked_up_again(clock, look_up):
    cache = TTLCache(3.0)
    cache.get("a", look_up)
    clock.now = 3.0

    assert "a" not in cache
    assert cache.get("a", look_up) == "a2"


def test_failed_renewal_is_retried_by_the_next_caller(clock, look_up):
    cache = TTLCache(3.0)
    cache.get("a", look_up)
    clock.now = 2.5

    with pytest.raises(LookupError):
        cache.get("a", lambda _: (_ for _ in ()).throw(LookupError()))

    assert cache.get("a", look_up) == "a2"


def test_full_cache_is_cleared(clock, look_up):
    cache = TTLCache(3.0, size=2)
    for key in "abc":
        cache.get(key, look_up)

    assert ("a" in cache, "c" in cache) == (False, True)
