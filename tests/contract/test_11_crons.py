"""Section 11.1: crons and their runs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4, uuid5
from zoneinfo import ZoneInfo

import pytest
from langgraph_sdk.errors import APIStatusError, NotFoundError, UnprocessableEntityError

from tests.installation import wait_until

# Each test deletes crons that fire every second, and so do the tests of the JavaScript client.
pytestmark = pytest.mark.xdist_group("javascript")

NAMESPACE = UUID("6ba7b821-9dad-11d1-80b4-00c04fd430c8")
STEPS = str(uuid5(NAMESPACE, "steps"))
YEARLY = "0 0 1 1 *"
EVERY_SECOND = "* * * * * *"


@pytest.fixture
def crons(client):
    """The crons of the client; crons that fire every second are deleted after the test."""
    yield client.crons
    for cron in client.crons.search(limit=1000):
        if cron["schedule"] == EVERY_SECOND:
            client.crons.delete(cron["cron_id"])


def parse_time(text):
    return datetime.fromisoformat(text)


def test_a_cron_without_a_thread_has_the_defaults(crons, mark):
    before = datetime.now(UTC)
    cron = crons.create("steps", schedule=YEARLY, input={"notes": []}, metadata=mark)
    # The year may end meanwhile.
    years = {before.year + 1, datetime.now(UTC).year + 1}

    assert cron["assistant_id"] == STEPS
    assert (cron["thread_id"], cron["user_id"], cron["end_time"]) == (None, None, None)
    assert (cron["schedule"], cron["timezone"], cron["enabled"]) == (YEARLY, None, True)
    assert cron["on_run_completed"] == "delete"
    assert parse_time(cron["next_run_date"]) in {datetime(year, 1, 1, tzinfo=UTC) for year in years}
    assert cron["metadata"] == mark


def test_the_payload_contains_the_given_options(crons):
    cron = crons.create(
        "steps",
        schedule=YEARLY,
        input={"notes": ["x"]},
        config={"tags": ["a"], "configurable": {"k": 1}},
        stream_mode=["updates"],
        durability="sync",
        interrupt_before=["write"],
    )

    assert cron["payload"] == {
        "assistant_id": STEPS,
        "schedule": YEARLY,
        "input": {"notes": ["x"]},
        "config": {"tags": ["a"], "configurable": {"k": 1, "cron_id": cron["cron_id"]}},
        "stream_mode": ["updates"],
        "durability": "sync",
        "interrupt_before": ["write"],
    }


def test_a_cron_is_created_on_a_thread(client, crons):
    thread = client.threads.create()

    cron = crons.create_for_thread(
        thread["thread_id"], STEPS, schedule=YEARLY, multitask_strategy="interrupt"
    )

    assert cron["thread_id"] == thread["thread_id"]
    assert cron["on_run_completed"] is None
    assert cron["payload"]["multitask_strategy"] == "interrupt"


def test_a_cron_on_a_missing_thread_is_not_found(crons):
    with pytest.raises(NotFoundError):
        crons.create_for_thread(str(uuid4()), "steps", schedule=YEARLY)


def test_a_cron_is_read_by_its_id(raw, crons):
    cron = crons.create("steps", schedule=YEARLY)

    assert raw.get(f"/runs/crons/{cron['cron_id']}").json() == cron
    assert raw.get(f"/runs/crons/{uuid4()}").status_code == 404
    assert raw.get("/runs/crons/x").status_code == 422


@pytest.mark.parametrize("schedule", ["", "x", "61 * * * *", "* * * *", "0 0 30 2 *"])
def test_an_invalid_schedule_is_rejected(crons, schedule):
    with pytest.raises(UnprocessableEntityError):
        crons.create("steps", schedule=schedule)


def test_an_unknown_time_zone_is_rejected(crons):
    with pytest.raises(UnprocessableEntityError, match="Mars"):
        crons.create("steps", schedule=YEARLY, timezone="Mars/Base")


def test_an_unknown_assistant_is_not_found(crons):
    with pytest.raises(NotFoundError):
        crons.create(str(uuid4()), schedule=YEARLY)


def test_a_cron_without_an_assistant_is_rejected(raw):
    response = raw.post("/runs/crons", json={"schedule": YEARLY})

    assert response.status_code == 422
    assert "assistant_id" in response.json()["detail"]


def test_context_and_configurable_together_are_rejected(crons):
    with pytest.raises(APIStatusError) as caught:
        crons.create("steps", schedule=YEARLY, context={"a": 1}, config={"configurable": {"a": 1}})

    assert caught.value.status_code == 400


def test_the_next_run_date_uses_the_time_zone(crons):
    berlin = ZoneInfo("Europe/Berlin")

    cron = crons.create("steps", schedule="30 9 * * *", timezone=berlin)

    local = parse_time(cron["next_run_date"]).astimezone(berlin)
    assert cron["timezone"] == "Europe/Berlin"
    assert (local.hour, local.minute) == (9, 30)


def test_the_sixth_field_of_a_schedule_is_seconds(crons):
    cron = crons.create("steps", schedule="0 0 1 1 * 30")

    assert parse_time(cron["next_run_date"]).second == 30


def test_an_end_in_the_past_is_accepted(crons):
    cron = crons.create("steps", schedule=YEARLY, end_time=datetime(2020, 1, 1, tzinfo=UTC))

    assert parse_time(cron["end_time"]) == datetime(2020, 1, 1, tzinfo=UTC)


def test_an_update_keeps_the_other_fields(crons, mark):
    end = datetime(2050, 1, 1, tzinfo=UTC)
    cron = crons.create("steps", schedule=YEARLY, input={"notes": []}, metadata=mark, end_time=end)

    changed = crons.update(cron["cron_id"], schedule="0 0 2 1 *", metadata={"more": 1})

    assert parse_time(changed["next_run_date"]).day == 2
    assert parse_time(changed["end_time"]) == end
    assert changed["metadata"] == {**mark, "more": 1}
    assert changed["payload"]["metadata"] == {"more": 1}
    assert changed["payload"]["input"] == {"notes": []}
    assert changed["updated_at"] > cron["updated_at"]


def test_null_clears_the_end_time(crons):
    cron = crons.create("steps", schedule=YEARLY, end_time=datetime(2020, 1, 1, tzinfo=UTC))

    assert crons.update(cron["cron_id"], end_time=None)["end_time"] is None


def test_a_cron_is_disabled_and_enabled(crons):
    cron = crons.create("steps", schedule=YEARLY, enabled=False)

    assert cron["enabled"] is False
    assert crons.update(cron["cron_id"], enabled=True)["enabled"] is True


def test_an_invalid_update_changes_nothing(raw, crons):
    cron = crons.create("steps", schedule=YEARLY)

    with pytest.raises(UnprocessableEntityError):
        crons.update(cron["cron_id"], schedule="nonsense")

    assert raw.get(f"/runs/crons/{cron['cron_id']}").json() == cron


def test_updating_and_deleting_a_missing_cron_is_not_found(crons):
    with pytest.raises(NotFoundError):
        crons.update(str(uuid4()), enabled=False)
    with pytest.raises(NotFoundError):
        crons.delete(str(uuid4()))


def test_a_deleted_cron_is_not_found(crons, raw):
    cron = crons.create("steps", schedule=YEARLY)

    crons.delete(cron["cron_id"])

    assert raw.get(f"/runs/crons/{cron['cron_id']}").status_code == 404


def test_crons_are_searched_and_sorted(client, crons, mark):
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


def test_a_search_returns_the_selected_fields(crons, mark):
    cron = crons.create("steps", schedule=YEARLY, metadata=mark)

    [row] = crons.search(metadata=mark, select=["cron_id", "schedule"])

    assert row == {"cron_id": cron["cron_id"], "schedule": YEARLY}


def test_a_search_has_pagination_headers(raw, crons, mark):
    for _ in range(3):
        crons.create("steps", schedule=YEARLY, metadata=mark)

    page = raw.post("/runs/crons/search", json={"metadata": mark, "limit": 2})

    assert len(page.json()) == 2
    assert (page.headers["X-Pagination-Next"], page.headers["X-Pagination-Total"]) == ("2", "3")


def test_a_graph_name_is_not_a_filter(raw):
    response = raw.post("/runs/crons/search", json={"assistant_id": "steps"})

    assert response.status_code == 422


def test_crons_are_counted(client, crons, mark):
    thread = client.threads.create()
    crons.create("steps", schedule=YEARLY, metadata=mark)
    crons.create_for_thread(thread["thread_id"], "steps", schedule=YEARLY, metadata=mark)

    assert crons.count(metadata=mark) == 2
    assert crons.count(thread_id=thread["thread_id"]) == 1
    assert crons.count(metadata=mark, assistant_id=str(uuid4())) == 0


# Firing


def test_a_cron_on_a_thread_creates_runs_there(client, crons, mark):
    thread = client.threads.create(metadata={"own": 1})
    cron = crons.create_for_thread(
        thread["thread_id"],
        "context",
        schedule=EVERY_SECOND,
        input={"question": "?"},
        context={"tone": "dry"},
        metadata=mark,
    )

    def finished_runs():
        return client.runs.list(thread["thread_id"], status="success")

    wait_until(finished_runs, "a firing", seconds=120)
    crons.delete(cron["cron_id"])

    run = finished_runs()[-1]
    values = client.threads.get(thread["thread_id"])["values"]
    assert run["metadata"]["mark"] == mark["mark"]
    assert values["answer"] == "dry 3"
    assert values["seen"]["configurable"]["cron_id"] == cron["cron_id"]
    assert "mark" not in client.threads.get(thread["thread_id"])["metadata"]


def test_a_cron_keeps_the_threads_of_its_runs_on_request(client, crons, mark):
    cron = crons.create(
        "steps",
        schedule=EVERY_SECOND,
        input={"notes": []},
        metadata=mark,
        on_run_completed="keep",
    )

    def kept_threads():
        return client.threads.search(metadata=mark, status="idle", limit=100)

    wait_until(lambda: len(kept_threads()) > 1, "two firings", seconds=120)
    crons.delete(cron["cron_id"])

    first = kept_threads()[-1]
    assert first["metadata"]["assistant_id"] == STEPS
    assert first["values"]["notes"] == ["plan", "write", "review"]
    [run] = client.runs.list(first["thread_id"])
    assert run["metadata"]["mark"] == mark["mark"]


def test_threads_of_a_cron_are_deleted_after_their_run(client, crons, mark):
    created = crons.create("steps", schedule=EVERY_SECOND, input={"notes": []}, metadata=mark)

    def has_fired():
        [row] = crons.search(metadata=mark)
        passed = parse_time(row["next_run_date"]) - parse_time(created["next_run_date"])
        return passed >= timedelta(seconds=2)

    wait_until(has_fired, "some firings", seconds=120)
    crons.delete(created["cron_id"])

    # The last run may still be running.
    wait_until(lambda: client.threads.search(metadata=mark) == [], "the end of all threads")


def test_a_cron_after_its_end_time_creates_no_run(client, crons, mark):
    past = datetime(2020, 1, 1, tzinfo=UTC)
    thread, other = client.threads.create(), client.threads.create()
    crons.create_for_thread(
        thread["thread_id"], "steps", schedule=EVERY_SECOND, end_time=past, metadata=mark
    )
    crons.create_for_thread(other["thread_id"], "steps", schedule=EVERY_SECOND)

    wait_until(lambda: client.runs.list(other["thread_id"]), "the other firing", seconds=120)

    assert client.runs.list(thread["thread_id"]) == []


def test_a_cron_is_deleted_with_its_thread(client, crons, mark):
    thread = client.threads.create()
    crons.create_for_thread(thread["thread_id"], "steps", schedule=YEARLY, metadata=mark)

    client.threads.delete(thread["thread_id"])

    assert crons.count(metadata=mark) == 0
