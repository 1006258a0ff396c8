"""Custom authentication: an agent's rules applied to rows and requests."""

from __future__ import annotations

import json
from uuid import uuid4

import pytest

from apps.agent_server.auth import custom_auth, rules
from apps.agent_server.auth.rules import UnsupportedFilter
from apps.agent_server.schemas.runs import RunBody
from apps.agent_server.schemas.threads import NewThread
from apps.deployments.langgraph_json.sections import Auth
from apps.deployments.routes import Route, ServingConfig


@pytest.mark.parametrize(
    ("filters", "document"),
    [
        (None, {}),
        ({}, {}),
        ({"owner": "ann"}, {"owner": "ann"}),
        ({"owner": {"$eq": "ann"}}, {"owner": "ann"}),
        ({"level": 3, "open": True, "gone": None}, {"level": 3, "open": True, "gone": None}),
        ({"readers": {"$contains": "ann"}}, {"readers": ["ann"]}),
        ({"readers": {"$contains": ["ann", "bob"]}}, {"readers": ["ann", "bob"]}),
        ({"owner": "a", "t": {"$contains": 1}}, {"owner": "a", "t": [1]}),
    ],
)
def test_filters_become_a_containment_document(filters, document):
    assert json.loads(rules.metadata_filter("threads", filters)) == document


@pytest.mark.parametrize(
    "filters",
    [
        {"owner": {"name": "ann"}},
        {"owner": ["ann"]},
        {"owner": {"$eq": ["ann"]}},
        {"owner": {"$contains": [["ann"]]}},
        {"owner": {"$ne": "ann"}},
        {"owner": {"$eq": "a", "$contains": "b"}},
        {"owner": {}},
        ["owner"],
        "owner",
    ],
)
def test_inexact_filter_is_rejected(filters):
    with pytest.raises(UnsupportedFilter):
        rules.metadata_filter("threads", filters)


def test_store_rules_cannot_filter():
    with pytest.raises(UnsupportedFilter, match="change value"):
        rules.metadata_filter("store", {"owner": "ann"})


@pytest.mark.parametrize(
    ("rule_status", "status"), [(418, 418), (200, 403), ("x", 403), (None, 403)]
)
def test_rejection_has_the_status_of_the_rule(rule_status, status):
    assert rules.refusal_error({"status": rule_status, "detail": "No."}).status == status


def test_body_changed_by_a_rule_is_used():
    body = NewThread.check({"metadata": {"a": 1}})
    before = rules.describe_value("threads", "create", body, {})

    after = {**before, "metadata": {"a": 1, "owner": "ann"}, "unknown": 1}
    changed = rules.apply_changes("threads", "create", body, before, after)

    assert before == {"metadata": {"a": 1}}
    assert changed.metadata == {"a": 1, "owner": "ann"}
    assert rules.apply_changes("threads", "create", body, before, dict(before)) is body


def test_body_written_by_a_rule_is_validated():
    body = NewThread.check({})
    before = rules.describe_value("threads", "create", body, {})

    with pytest.raises(Exception, match="if_exists"):
        rules.apply_changes("threads", "create", body, before, {**before, "if_exists": "perhaps"})


def test_run_is_passed_to_rules_as_in_the_sdk():
    thread_id = str(uuid4())
    body = RunBody.check({"assistant_id": "agent", "input": {"a": 1}, "after_seconds": 5})

    value = rules.describe_value("threads", "create_run", body, {"thread_id": thread_id})

    assert (value["assistant_id"], value["thread_id"]) == ("agent", thread_id)
    assert (value["status"], value["metadata"], value["after_seconds"]) == ("pending", {}, 5)
    assert value["kwargs"]["input"] == {"a": 1}


def test_rule_can_change_the_input_of_a_run():
    body = RunBody.check({"assistant_id": "agent", "input": {"a": 1}})
    before = rules.describe_value("threads", "create_run", body, {})
    after = {**before, "metadata": {"owner": "ann"}, "kwargs": {**before["kwargs"], "input": 2}}

    changed = rules.apply_changes("threads", "create_run", body, before, after)

    assert (changed.metadata, changed.input) == ({"owner": "ann"}, 2)


# The user cache


def make_route(**cache) -> Route:
    auth = Auth(path="./a.py:a", cache=cache) if cache else Auth(path="./a.py:a")
    ids = [uuid4() for _ in range(4)]
    return Route(
        *ids[:3], "slug", "name", ids[3], {}, False, ("agent",), serving=ServingConfig(auth=auth)
    )


def test_users_are_cached_by_the_configured_headers():
    users, cached = custom_auth.UserCache(), make_route(cache_keys=["authorization"], ttl_seconds=5)
    users.put(cached, {"authorization": "a", "x": "1"}, {"identity": "ann"})

    assert users.get(cached, {"authorization": "a", "x": "2"}) == {"identity": "ann"}
    assert users.get(cached, {"authorization": "b"}) is None
    assert users.get(make_route(cache_keys=["authorization"]), {"authorization": "a"}) is None


def test_request_without_the_configured_headers_is_not_cached():
    users, cached = custom_auth.UserCache(), make_route(cache_keys=["authorization"])
    users.put(cached, {}, {"identity": "ann"})

    assert users.get(cached, {}) is None


def test_users_are_not_cached_without_a_cache_setting():
    users, plain = custom_auth.UserCache(), make_route()
    users.put(plain, {"authorization": "a"}, {"identity": "ann"})

    assert users.get(plain, {"authorization": "a"}) is None


def test_oldest_users_are_evicted_first():
    users, cached = custom_auth.UserCache(), make_route(cache_keys=["authorization"], max_size=2)
    for name in "abc":
        users.put(cached, {"authorization": name}, {"identity": name})

    remaining = [users.get(cached, {"authorization": name}) for name in "abc"]

    assert remaining == [None, {"identity": "b"}, {"identity": "c"}]


def test_cached_users_expire(monkeypatch):
    users, cached = custom_auth.UserCache(), make_route(cache_keys=["authorization"], ttl_seconds=5)
    users.put(cached, {"authorization": "a"}, {"identity": "ann"})
    later = custom_auth.time.monotonic() + 6

    monkeypatch.setattr(custom_auth.time, "monotonic", lambda: later)

    assert users.get(cached, {"authorization": "a"}) is None


def test_platform_headers_are_not_sent_to_agents(settings):
    platform_cookies = (settings.SESSION_COOKIE_NAME, settings.CSRF_COOKIE_NAME)
    request_headers = [
        ("X-Api-Key", "slip_abc"),
        ("Authorization", "Bearer slip_abc"),
        ("Cookie", f"{platform_cookies[0]}=1; theirs=2; {platform_cookies[1]}=3"),
        ("X-Slipway-Loopback", "x"),
        ("X-Else", "kept"),
    ]

    assert [*custom_auth.strip_platform_credentials(request_headers)] == [
        ("Cookie", "theirs=2"),
        ("X-Else", "kept"),
    ]
