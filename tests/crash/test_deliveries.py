"""`kill -9` of the worker while receivers have not answered: another worker delivers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any, NamedTuple
from uuid import uuid4

import pytest

from apps.webhooks.delivery_worker import LEASE_SECONDS
from tests.crash.test_experiments import Platform
from tests.factories.prompts import prompt_manifest
from tests.installation import PATIENCE_SECONDS, wait_until
from tests.receiver import Received, Receiver

pytestmark = [pytest.mark.lifecycle, pytest.mark.xdist_group("machine")]

ALERTS = "/v1/platform/alerts"
DEPLOYMENT_WEBHOOKS = "/v1/platform/deployment-webhooks"
RULE = {
    "name": "Errors", "attribute": "error_count", "aggregation": "count", "window_minutes": 15,
    "threshold": 1,
}  # fmt: skip


DeliveryList = Callable[[], list[dict[str, Any]]]


class Sender(NamedTuple):
    """What has sent a request to its path of the receiver."""

    secret: str
    list_deliveries: DeliveryList


@pytest.fixture
def platform(killable, killable_key) -> Iterator[Platform]:
    killable.wait_until_ready()
    platform = Platform(killable, killable_key)
    with closing(platform.http):
        yield platform


def send_alert(platform: Platform, url: str) -> Sender:
    action = {"target": "webhook", "config": {"url": url}}
    body = {"rule": RULE, "actions": [action]}
    created = platform.request("POST", ALERTS, json=body).json()
    path = f"{ALERTS}/rules/{created['rule']['id']}"
    platform.request("POST", f"{path}/test", json={})
    (action,) = created["actions"]
    return Sender(
        action["signing_secret"], lambda: platform.request("GET", f"{path}/deliveries").json()
    )


def send_prompt_commit(platform: Platform, url: str) -> Sender:
    body = {"url": url, "triggers": ["commit"]}
    webhook = platform.request("POST", "/prompt-webhooks", json=body).json()
    handle = f"prompt-{uuid4()}"
    platform.request("POST", "/repos", json={"repo_handle": handle, "is_public": False})
    platform.request("POST", f"/commits/-/{handle}", json={"manifest": prompt_manifest("Hello")})
    path = f"/prompt-webhooks/{webhook['id']}/deliveries"
    return Sender(webhook["signing_secret"], lambda: platform.request("GET", path).json())


def send_deployment(platform: Platform, url: str) -> Sender:
    webhook = platform.request("POST", DEPLOYMENT_WEBHOOKS, json={"url": url}).json()
    path = f"{DEPLOYMENT_WEBHOOKS}/{webhook['id']}"
    platform.request("POST", f"{path}/test", json={})
    return Sender(
        webhook["signing_secret"], lambda: platform.request("GET", f"{path}/deliveries").json()
    )


SENDERS = {
    "/alert": send_alert,
    "/prompt": send_prompt_commit,
    "/deployment": send_deployment,
}


def receive(receiver: Receiver, seconds: float) -> dict[str, Received]:
    """Wait for a request to each path, and return them."""
    requests: dict[str, Received] = {}
    deadline = time.monotonic() + seconds
    while len(requests) < len(SENDERS):
        request = receiver.next(deadline - time.monotonic())
        assert request.path not in requests
        requests[request.path] = request
    return requests


def test_unanswered_deliveries_of_a_killed_worker_arrive_by_another_one(platform):
    released = threading.Event()
    with Receiver() as receiver:
        receiver.hold = lambda: released.wait(PATIENCE_SECONDS)
        base = receiver.url.removesuffix("/hook")
        senders = {path: send(platform, f"{base}{path}") for path, send in SENDERS.items()}
        first = receive(receiver, PATIENCE_SECONDS)

        platform.kill("worker")

        killed_at = time.monotonic()
        released.set()
        second = receive(receiver, LEASE_SECONDS + PATIENCE_SECONDS)
        print(f"delivered {time.monotonic() - killed_at:.1f} s after the kill")
        for path, (secret, list_deliveries) in senders.items():

            def is_delivered(list_rows: DeliveryList = list_deliveries) -> bool:
                return list_rows()[0]["status"] == "delivered"

            wait_until(is_delivered, f"the end of {path}")
            (row,) = list_deliveries()
            # The attempt of the killed worker has no result.
            assert (row["attempts"], [entry["status"] for entry in row["log"]]) == (2, [200])
            ids = {request.headers["webhook-id"] for request in (first[path], second[path])}
            assert ids == {row["message_id"]}
            assert first[path].body == second[path].body
            assert second[path].is_signed_with(secret)
        assert receiver.count_unread == 0
