"""Odd values that clients and receivers send to a live platform."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import httpx
import pytest

from tests.installation import wait_until
from tests.receiver import Receiver
from tests.starvation.trial import Trial

pytestmark = pytest.mark.xdist_group("machine")

ANSWER_SECONDS = 60


@pytest.fixture
def api(trial: Trial) -> Iterator[httpx.Client]:
    headers = {"X-Api-Key": trial.attacker_key}
    with httpx.Client(
        base_url=trial.installation.url, headers=headers, timeout=ANSWER_SECONDS
    ) as client:
        yield client


def test_span_with_a_list_as_key_does_not_lose_its_batch(api: httpx.Client) -> None:
    """Item 15: the attribute was a 500, after which exporters drop the batch."""
    project = f"otlp-{uuid4()}"
    now = int(datetime.now(UTC).timestamp() * 1e9)

    def make_span(name: str, attributes: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "traceId": uuid4().hex,
            "spanId": uuid4().hex[:16],
            "name": name,
            "startTimeUnixNano": str(now),
            "endTimeUnixNano": str(now + 1000),
            "attributes": attributes,
        }

    odd = make_span("odd", [{"key": ["a"], "value": {"stringValue": "b"}}])
    spans = [make_span("first", []), odd, make_span("last", [])]
    response = api.post(
        "/api/v1/otel/v1/traces",
        json={"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]},
        headers={"Langsmith-Project": project},
    )

    assert response.status_code == 200, response.text
    assert response.json()["partialSuccess"]["rejectedSpans"] == "1"
    [session] = api.get("/api/v1/sessions", params={"name": project}).json()
    runs = api.post("/api/v1/runs/query", json={"session": [session["id"]]}).json()["runs"]
    assert sorted(run["name"] for run in runs) == ["first", "last"]


def test_retry_after_of_5000_digits_delays_a_webhook_by_an_hour(
    trial: Trial, api: httpx.Client
) -> None:
    """Item 15: the webhook was sent again and again."""
    agent = trial.attacker_agent_url
    with Receiver(503, headers={"Retry-After": "9" * 5000}) as receiver:
        started_at = datetime.now(UTC)
        body = {"assistant_id": "echo", "input": {"text": "a"}, "webhook": receiver.url}
        thread = api.post(f"{agent}/threads", json={}).json()["thread_id"]
        run = api.post(f"{agent}/threads/{thread}/runs", json=body).json()
        receiver.next(ANSWER_SECONDS)
        path = f"{agent}/threads/{thread}/runs/{run['run_id']}/webhooks"
        wait_until(lambda: api.get(path).json()[0]["status"] == "due", "the end of the attempt")
        [delivery] = api.get(path).json()

        assert receiver.count_unread == 0
    assert (delivery["attempts"], delivery["log"][0]["status"]) == (1, 503)
    delay = datetime.fromisoformat(delivery["next_attempt_at"]) - started_at
    assert timedelta(minutes=59) < delay < timedelta(minutes=62)
