"""Section 6: creating, reading and waiting for runs."""

from __future__ import annotations


def test_wait_answers_the_state(client):
    thread = client.threads.create()

    answer = client.runs.wait(thread["thread_id"], "steps", input={"notes": ["asked"]})

    assert answer["notes"] == ["asked", "plan", "write", "review"]
    assert answer["count"] == 3
