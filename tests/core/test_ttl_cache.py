"""Values that may be a moment old."""

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
    found = Clock()
    monkeypatch.setattr(ttl_cache, "time", found)
    return found


@pytest.fixture
def asked():
    return []


@pytest.fixture
def look_up(asked):
    def look(key):
        asked.append(key)
        return f"{key}{len(asked)}"

    return look


def test_fresh_value_is_looked_up_once(clock, look_up, asked):
    kept = TTLCache(3.0)

    found = [kept.get("a", look_up), kept.get("b", look_up), kept.get("a", look_up)]

    assert (found, asked) == (["a1", "b2", "a1"], ["a", "b"])
    assert ("a" in kept, "c" in kept, kept.peek("b"), kept.peek("c")) == (True, False, "b2", None)


def test_one_caller_renews_while_others_use_the_old_value(clock, asked):
    kept = TTLCache(3.0)
    seen = []

    def slow(key):
        seen.append(kept.get(key, pytest.fail))
        return "new"

    kept.get("a", lambda _: "old")
    clock.now = 2.5

    assert (kept.get("a", slow), seen, kept.get("a", pytest.fail)) == ("new", ["old"], "new")


def test_expired_value_is_looked_up_again(clock, look_up):
    kept = TTLCache(3.0)
    kept.get("a", look_up)
    clock.now = 3.0

    assert "a" not in kept
    assert kept.get("a", look_up) == "a2"


def test_failed_renewal_is_retried_by_the_next_caller(clock, look_up):
    kept = TTLCache(3.0)
    kept.get("a", look_up)
    clock.now = 2.5

    with pytest.raises(LookupError):
        kept.get("a", lambda _: (_ for _ in ()).throw(LookupError()))

    assert kept.get("a", look_up) == "a2"


def test_full_cache_is_cleared(clock, look_up):
    kept = TTLCache(3.0, size=2)
    for key in "abc":
        kept.get(key, look_up)

    assert ("a" in kept, "c" in kept) == (False, True)
