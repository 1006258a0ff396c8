"""Section 11.1: crons, and that they fire."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4, uuid5
from zoneinfo import ZoneInfo

import httpx
import pytest
from langgraph_sdk.errors import APIStatusError, NotFoundError, UnprocessableEntityError

from tests.installation import wait_until

# Each test removes what fires every second; so do those of the JavaScript client.
pytestmark = pytest.mark.xdist_group("javascript")

NAMESPACE = UUID("6ba7b821-9dad-11d1-80b4-00c04fd430c8")
STEPS = str(uuid5(NAMESPACE, "steps"))
YEARLY = "0 0 1 1 *"
EVERY_SECOND = "* * * * * *"


@pytest.fixture
def crons(client):
    """The client's; what a test leaves is deleted, so that nothing goes on firing."""
    yield client.crons
    for cron in client.crons.search(limit=1000):
        if cron["schedule"] == EVERY_SECOND:
            client.crons.delete(cron["cron_id"])


@pytest.fixture
def raw(live, agent_url):
    with httpx.Client(base_url=agent_url, headers=live.headers, timeout=60) as http:
        yield http


@pytest.fixture
def mark():
    return {"mark": str(uuid4())}


def moment(text):
    return datetime.fromisoformat(text)


def test_a_cron_without_a_thread(crons, mark):
    made = crons.create("steps", schedule=YEARLY, input={"notes": []}, metadata=mark)

    year = datetime.now(UTC).year + 1
    assert made["assistant_id"] == STEPS
    assert (made["thread_id"], made["user_id"], made["end_time"]) == (None, None, None)
    assert (made["schedule"], made["timezone"], made["enabled"]) == (YEARLY, None, True)
    assert made["on_run_completed"] == "delete"
    assert moment(made["next_run_date"]) == datetime(year, 1, 1, tzinfo=UTC)
    assert made["metadata"] == mark


def test_the_payload_echoes_what_was_asked_for(crons):
    made = crons.create(
        "steps",
        schedule=YEARLY,
        input={"notes": ["x"]},
        config={"tags": ["a"], "configurable": {"k": 1}},
        stream_mode=["updates"],
        durability="sync",
        interrupt_before=["write"],
    )

    assert made["payload"] == {
        "assistant_id": STEPS,
        "schedule": YEARLY,
        "input": {"notes": ["x"]},
        "config": {"tags": ["a"], "configurable": {"k": 1, "cron_id": made["cron_id"]}},
        "stream_mode": ["updates"],
        "durability": "sync",
        "interrupt_before": ["write"],
    }


def test_a_cron_on_a_thread(client, crons):
    thread = client.threads.create()

    made = crons.create_for_thread(
        thread["thread_id"], STEPS, schedule=YEARLY, multitask_strategy="interrupt"
    )

    assert made["thread_id"] == thread["thread_id"]
    assert made["on_run_completed"] is None
    assert made["payload"]["multitask_strategy"] == "interrupt"


def test_a_cron_on_a_thread_that_is_not_there(crons):
    with pytest.raises(NotFoundError):
        crons.create_for_thread(str(uuid4()), "steps", schedule=YEARLY)


def test_one_cron_by_its_id(raw, crons):
    made = crons.create("steps", schedule=YEARLY)

    assert raw.get(f"/runs/crons/{made['cron_id']}").json() == made
    assert raw.get(f"/runs/crons/{uuid4()}").status_code == 404
    assert raw.get("/runs/crons/x").status_code == 422


@pytest.mark.parametrize("schedule", ["", "x", "61 * * * *", "* * * *", "0 0 30 2 *"])
def test_bad_schedules(crons, schedule):
    with pytest.raises(UnprocessableEntityError):
        crons.create("steps", schedule=schedule)


def test_an_unknown_time_zone(crons):
    with pytest.raises(UnprocessableEntityError, match="Mars"):
        crons.create("steps", schedule=YEARLY, timezone="Mars/Base")


def test_an_unknown_assistant(crons):
    with pytest.raises(NotFoundError):
        crons.create(str(uuid4()), schedule=YEARLY)


def test_no_assistant_at_all(raw):
    answer = raw.post("/runs/crons", json={"schedule": YEARLY})

    assert answer.status_code == 422
    assert "assistant_id" in answer.json()["detail"]


def test_context_and_configurable_at_once(crons):
    with pytest.raises(APIStatusError) as refused:
        crons.create("steps", schedule=YEARLY, context={"a": 1}, config={"configurable": {"a": 1}})

    assert refused.value.status_code == 400


def test_a_time_zone_moves_the_next_run(crons):
    berlin = ZoneInfo("Europe/Berlin")

    made = crons.create("steps", schedule="30 9 * * *", timezone=berlin)

    local = moment(made["next_run_date"]).astimezone(berlin)
    assert made["timezone"] == "Europe/Berlin"
    assert (local.hour, local.minute) == (9, 30)


def test_a_sixth_field_is_seconds(crons):
    made = crons.create("steps", schedule="0 0 1 1 * 30")

    assert moment(made["next_run_date"]).second == 30


def test_an_end_in_the_past_is_accepted(crons):
    made = crons.create("steps", schedule=YEARLY, end_time=datetime(2020, 1, 1, tzinfo=UTC))

    assert moment(made["end_time"]) == datetime(2020, 1, 1, tzinfo=UTC)


def test_updating_some_fields_keeps_the_others(crons, mark):
    end = datetime(2050, 1, 1, tzinfo=UTC)
    made = crons.create("steps", schedule=YEARLY, input={"notes": []}, metadata=mark, end_time=end)

    changed = crons.update(made["cron_id"], schedule="0 0 2 1 *", metadata={"more": 1})

    assert moment(changed["next_run_date"]).day == 2
    assert moment(changed["end_time"]) == end
    assert changed["metadata"] == {**mark, "more": 1}
    assert changed["payload"]["metadata"] == {"more": 1}
    assert changed["payload"]["input"] == {"notes": []}
    assert changed["updated_at"] > made["updated_at"]


def test_null_takes_the_end_away(crons):
    made = crons.create("steps", schedule=YEARLY, end_time=datetime(2020, 1, 1, tzinfo=UTC))

    assert crons.update(made["cron_id"], end_time=None)["end_time"] is None


def test_disabling_and_enabling(crons):
    made = crons.create("steps", schedule=YEARLY, enabled=False)

    assert made["enabled"] is False
    assert crons.update(made["cron_id"], enabled=True)["enabled"] is True


def test_a_bad_update_changes_nothing(raw, crons):
    made = crons.create("steps", schedule=YEARLY)

    with pytest.raises(UnprocessableEntityError):
        crons.update(made["cron_id"], schedule="nonsense")

    assert raw.get(f"/runs/crons/{made['cron_id']}").json() == made


def test_updating_and_deleting_what_is_not_there(crons):
    with pytest.raises(NotFoundError):
        crons.update(str(uuid4()), enabled=False)
    with pytest.raises(NotFoundError):
        crons.delete(str(uuid4()))


def test_a_deleted_cron_is_gone(crons, raw):
    made = crons.create("steps", schedule=YEARLY)

    crons.delete(made["cron_id"])

    assert raw.get(f"/runs/crons/{made['cron_id']}").status_code == 404


def test_searching(client, crons, mark):
    thread = client.threads.create()
    free = crons.create("steps", schedule=YEARLY, metadata=mark)
    bound = crons.create_for_thread(thread["thread_id"], "human", schedule=YEARLY, metadata=mark)
    off = crons.create("steps", schedule="0 0 2 1 *", metadata=mark, enabled=False)

    def ids(**filters):
        return [row["cron_id"] for row in crons.search(metadata=mark, **filters)]

    assert ids() == [off["cron_id"], bound["cron_id"], free["cron_id"]]
    assert ids(thread_id=thread["thread_id"]) == [bound["cron_id"]]
    assert ids(assistant_id=STEPS) == [off["cron_id"], free["cron_id"]]
    assert ids(enabled=False) == [off["cron_id"]]
    assert ids(sort_by="next_run_date", sort_order="desc")[0] == off["cron_id"]
    assert ids(limit=1, offset=1) == [bound["cron_id"]]


def test_select_in_a_search(crons, mark):
    made = crons.create("steps", schedule=YEARLY, metadata=mark)

    [row] = crons.search(metadata=mark, select=["cron_id", "schedule"])

    assert row == {"cron_id": made["cron_id"], "schedule": YEARLY}


def test_a_search_pages_by_headers(raw, crons, mark):
    for _ in range(3):
        crons.create("steps", schedule=YEARLY, metadata=mark)

    page = raw.post("/runs/crons/search", json={"metadata": mark, "limit": 2})

    assert len(page.json()) == 2
    assert (page.headers["X-Pagination-Next"], page.headers["X-Pagination-Total"]) == ("2", "3")


def test_a_graphs_name_is_no_filter(raw):
    answer = raw.post("/runs/crons/search", json={"assistant_id": "steps"})

    assert answer.status_code == 422


def test_counting(client, crons, mark):
    thread = client.threads.create()
    crons.create("steps", schedule=YEARLY, metadata=mark)
    crons.create_for_thread(thread["thread_id"], "steps", schedule=YEARLY, metadata=mark)

    assert crons.count(metadata=mark) == 2
    assert crons.count(thread_id=thread["thread_id"]) == 1
    assert crons.count(metadata=mark, assistant_id=str(uuid4())) == 0


# Firing


def test_a_cron_on_a_thread_fires_there(client, crons, mark):
    thread = client.threads.create(metadata={"own": 1})
    made = crons.create_for_thread(
        thread["thread_id"],
        "context",
        schedule=EVERY_SECOND,
        input={"question": "?"},
        context={"tone": "dry"},
        metadata=mark,
    )

    def ended():
        return client.runs.list(thread["thread_id"], status="success")

    wait_until(ended, "a firing", seconds=120)
    crons.delete(made["cron_id"])

    run = ended()[-1]
    values = client.threads.get(thread["thread_id"])["values"]
    assert run["metadata"]["mark"] == mark["mark"]
    assert values["answer"] == "dry 3"
    assert values["seen"]["configurable"]["cron_id"] == made["cron_id"]
    assert "mark" not in client.threads.get(thread["thread_id"])["metadata"]


def test_a_cron_makes_threads_and_keeps_them_if_asked(client, crons, mark):
    made = crons.create(
        "steps",
        schedule=EVERY_SECOND,
        input={"notes": []},
        metadata=mark,
        on_run_completed="keep",
    )

    def kept():
        return client.threads.search(metadata=mark, status="idle", limit=100)

    wait_until(lambda: len(kept()) > 1, "two firings", seconds=120)
    crons.delete(made["cron_id"])

    first = kept()[-1]
    assert first["metadata"]["assistant_id"] == STEPS
    assert first["values"]["notes"] == ["plan", "write", "review"]
    [run] = client.runs.list(first["thread_id"])
    assert run["metadata"]["mark"] == mark["mark"]


def test_threads_of_a_cron_go_when_their_run_is_done(client, crons, mark):
    made = crons.create("steps", schedule=EVERY_SECOND, input={"notes": []}, metadata=mark)

    def has_fired():
        [cron] = crons.search(metadata=mark)
        passed = moment(cron["next_run_date"]) - moment(made["next_run_date"])
        return passed >= timedelta(seconds=2)

    wait_until(has_fired, "some firings", seconds=120)
    crons.delete(made["cron_id"])

    # The last one may be under way.
    wait_until(lambda: client.threads.search(metadata=mark) == [], "the end of all threads")


def test_a_cron_that_has_ended_does_not_fire(client, crons, mark):
    past = datetime(2020, 1, 1, tzinfo=UTC)
    thread, witness = client.threads.create(), client.threads.create()
    crons.create_for_thread(
        thread["thread_id"], "steps", schedule=EVERY_SECOND, end_time=past, metadata=mark
    )
    crons.create_for_thread(witness["thread_id"], "steps", schedule=EVERY_SECOND)

    wait_until(lambda: client.runs.list(witness["thread_id"]), "the other firing", seconds=120)

    assert client.runs.list(thread["thread_id"]) == []


def test_a_cron_goes_with_its_thread(client, crons, mark):
    thread = client.threads.create()
    crons.create_for_thread(thread["thread_id"], "steps", schedule=YEARLY, metadata=mark)

    client.threads.delete(thread["thread_id"])

    assert crons.count(metadata=mark) == 0
