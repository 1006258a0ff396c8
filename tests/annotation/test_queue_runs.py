"""The runs of a queue, as clients add, read, count and remove them."""

from __future__ import annotations

import csv
import io
from uuid import uuid4

import pytest

from apps.annotation.models import QueueItem
from apps.annotation.services import items as services
from apps.annotation.services.reviews import COMPLETED, VIEWED, set_status
from apps.trace_store import run_store
from apps.trace_store.models import RetainedTrace
from tests.factories.annotation import fill_queue, make_queue
from tests.factories.tracing import stored_run

QUEUES = "/annotation-queues"


@pytest.fixture
def url(queue):
    return f"{QUEUES}/{queue.pk}"


@pytest.fixture
def items_url(queue):
    return f"/v1/platform{QUEUES}/{queue.pk}/items"


def test_runs_are_added_once_and_read_by_position(api, url, run_ids):
    ids = [str(run_id) for run_id in run_ids]

    added = api.post(f"{url}/runs", ids)
    again = api.post(f"{url}/runs", {"runs": [{"run_id": ids[0]}]})

    assert added.status_code == 200, added.content
    assert [item["run_id"] for item in added.json()] == ids
    assert again.json() == added.json()[:1]
    runs = [api.get(f"{url}/run/{index}").json() for index in range(3)]
    assert [run["id"] for run in runs] == ids
    first = added.json()[0]
    assert runs[0]["queue_run_id"] == first["id"]
    assert (runs[0]["added_at"], runs[0]["last_reviewed_time"]) == (first["added_at"], None)
    assert runs[0]["inputs"] == {"question": "why?"}
    assert (runs[0]["completed_by"], runs[0]["reserved_by"]) == ([], [])
    for index in (3, 10**6, 10**30):
        beyond = api.get(f"{url}/run/{index}")
        assert (beyond.status_code, beyond.json()["code"]) == (404, "queue_item_not_found")
    assert [run["id"] for run in api.get(f"{url}/runs").json()] == ids
    assert [run["id"] for run in api.get(f"{url}/runs", limit=1, offset=1).json()] == ids[1:2]
    assert api.get(f"{url}/runs", include_stats="false").json()[0]["feedback_stats"] is None
    assert api.get(f"{url}/run/0", include_extra="false").json().get("extra") is None


def test_runs_are_added_by_key(api, url, run_ids, project):
    rows = run_store.fetch_rows(project.workspace_id, run_ids)
    keys = [
        {
            "run_id": str(row.id),
            "session_id": str(row.project_id),
            "start_time": row.start_time.isoformat(),
        }
        for row in rows
    ]

    added = api.post(f"{url}/runs/by-key", keys)
    wrong = api.post(f"{url}/runs/by-key", [keys[0] | {"session_id": str(uuid4())}])
    old = api.post(f"{url}/runs/by-key", [keys[0] | {"start_time": "2020-01-01T00:00:00Z"}])

    assert {item["run_id"] for item in added.json()} == {str(run_id) for run_id in run_ids}
    assert (wrong.status_code, old.status_code) == (404, 404)


def test_unknown_and_foreign_runs_fail_the_whole_call(api, url, queue, run_ids, other_workspace):
    foreign = stored_run(other_workspace)

    response = api.post(f"{url}/runs", [str(run_ids[0]), str(foreign)])

    assert response.status_code == 404
    assert response.json() == {
        "detail": "Some runs are not in this workspace.",
        "code": "runs_not_found",
        "errors": [{"run_id": str(foreign)}],
    }
    assert not QueueItem.objects.for_workspace(queue.workspace_id).exists()


@pytest.mark.parametrize("body", [{}, ["x"], [{"run": "1"}], {"runs": None}, [1], "null"])
def test_malformed_lists_of_runs_are_refused(api, url, body):
    assert api.post(f"{url}/runs", body).status_code == 422


def test_adding_can_extend_the_retention_of_traces(api, url, workspace, run_ids):
    api.post(f"{url}/runs", [str(run_ids[0])])
    traces = RetainedTrace.objects.for_workspace(workspace)
    assert not traces.exists()

    api.post(f"{url}/runs?extend_trace_retention=true", [str(run_ids[0])])

    assert traces.get().trace_id == run_ids[0]


def test_queue_has_a_maximum_of_items(api, url, run_ids, monkeypatch):
    monkeypatch.setattr(services, "MAX_ITEMS", 2)

    response = api.post(f"{url}/runs", [str(run_id) for run_id in run_ids])

    assert (response.status_code, response.json()["code"]) == (409, "too_many")
    assert api.get(f"{url}/total_size").json() == {"size": 0}


def test_experiments_fill_queues(api, url, workspace, make_experiment, examples):
    experiment = make_experiment("one", *examples)
    count = len(examples)

    filled = api.post(
        f"{QUEUES}/populate", {"queue_id": url[-36:], "session_ids": [str(experiment.id)]}
    )
    created = api.post(QUEUES, {"name": "new", "session_ids": [str(experiment.id)]})
    refused = api.post(QUEUES, {"name": "none", "session_ids": [str(uuid4())]})

    assert filled.status_code == 200, filled.content
    assert api.get(f"{url}/size").json() == {"size": count}
    assert api.get(f"{QUEUES}/{created.json()['id']}/size").json() == {"size": count}
    assert (refused.status_code, refused.json()["code"]) == (404, "experiment_not_found")
    assert [item["name"] for item in api.get(QUEUES, name="none").json()] == []


def test_project_that_is_no_experiment_fills_no_queue(api, url, project, run_ids):
    body = {"queue_id": url[-36:], "session_ids": [str(project.pk)]}

    assert api.post(f"{QUEUES}/populate", body).status_code == 404
    assert api.get(f"{url}/size").json() == {"size": 0}


def test_runs_are_removed_by_run_by_item_and_together(api, url, items_url, items):
    first, second, third = items

    assert api.delete(f"{url}/runs/{first.run_id}").status_code == 200
    assert api.delete(f"{url}/runs/{first.run_id}").status_code == 404
    assert api.delete(f"{url}/runs/{second.pk}").status_code == 200
    assert [run["queue_run_id"] for run in api.get(f"{url}/runs").json()] == [str(third.pk)]
    assert api.post(f"{url}/runs/delete", {"run_ids": [], "delete_all": True}).status_code == 422
    assert api.post(f"{url}/runs/delete", {}).status_code == 422
    kept = {"delete_all": True, "exclude_run_ids": [str(third.run_id)]}
    assert api.post(f"{url}/runs/delete", kept).json()["message"].startswith("0 runs")
    removed = api.post(f"{items_url}/delete", {"item_ids": [str(third.pk), str(uuid4())]})
    assert removed.json() == {"message": "1 items removed from the annotation queue."}
    assert api.get(f"{url}/runs").json() == []


def test_times_of_an_item_set_its_place(api, url, items_url, items):
    late = {"added_at": "2030-01-01T00:00:00Z", "last_reviewed_time": "2029-01-01T00:00:00Z"}

    changed = api.patch(f"{url}/runs/{items[0].pk}", late)
    api.patch(f"{items_url}/{items[1].pk}", {"added_at": "2020-01-01T00:00:00Z"})

    assert changed.json()["last_reviewed_time"] == "2029-01-01T00:00:00Z"
    order = [run["queue_run_id"] for run in api.get(f"{url}/runs").json()]
    assert order == [str(items[1].pk), str(items[2].pk), str(items[0].pk)]
    assert api.patch(f"{url}/runs/{items[0].pk}", {"added_at": "soon"}).status_code == 422


def test_queues_of_a_run_are_listed(api, workspace, queue, items):
    make_queue(workspace, "without it")

    queues = api.get(f"{QUEUES}/{items[0].run_id}/queues").json()

    assert [item["id"] for item in queues] == [str(queue.pk)]
    assert api.get(f"{QUEUES}/{uuid4()}/queues").status_code == 404


def test_items_are_paged_in_both_directions(api, items_url, items):
    ids = [str(item.pk) for item in items]

    def get(**query):
        response = api.get(items_url, status="needs_my_review", **query)
        assert response.status_code == 200, response.content
        body = response.json()
        return [item["id"] for item in body["items"]], body["next_cursor"]

    page, cursor = get(page_size=2)
    assert page == ids[:2]
    last, end = get(page_size=2, cursor=cursor)
    assert (last, end) == (ids[2:], None)
    placement = api.get(f"{items_url}/{ids[2]}/placement").json()
    assert placement == {
        "section": "needs_my_review", "position": 2, "cursor": cursor, "item_type": "RUN",
    }  # fmt: skip
    assert get(cursor=placement["cursor"])[0] == ids[2:]
    assert api.get(f"{items_url}/{ids[0]}/placement").json()["cursor"] is None
    before, more = get(page_size=1, cursor=cursor, direction="backward")
    assert before == ids[:1]
    assert more is None
    assert get(item_type="thread")[0] == []
    assert get(min_start_time="2100-01-01T00:00:00Z")[0] == []
    assert get(max_start_time="2100-01-01T00:00:00Z")[0] == ids


def test_listed_item_has_the_fields_of_the_client(api, items_url, items, project):
    (item, *_) = api.get(items_url, status="needs_my_review").json()["items"]

    assert item.keys() == {
        "id", "queue_id", "run_id", "item_type", "project_id", "start_time", "thread_id",
        "added_at", "effective_added_at", "last_reviewed_time", "completed_by", "reserved_by",
        "assigned_to", "source_proposed_example_id",
    }  # fmt: skip
    assert (item["item_type"], item["project_id"]) == ("RUN", str(project.pk))


@pytest.mark.parametrize(
    "query",
    [
        {},
        {"status": "completed"},
        {"status": "archived", "cursor": "x"},
        {"status": "archived", "direction": "backward"},
        {"status": "archived", "page_size": 101},
    ],
)
def test_malformed_queries_of_items_are_refused(api, items_url, query):
    assert api.get(items_url, **query).status_code in {400, 422}


def test_items_are_added_with_their_project(api, items_url, run_ids, project):
    body = {
        "items": [
            {
                "item_type": "RUN",
                "run_id": str(run_ids[0]),
                "project_id": str(project.pk),
                "source_proposed_example_id": str(run_ids[1]),
            }
        ]
    }

    added = api.post(items_url, body)
    thread = api.post(items_url, {"items": [{"item_type": "THREAD", "thread_id": "t"}]})

    assert added.status_code == 200, added.content
    (item,) = added.json()["items"]
    assert (item["run_id"], item["source_proposed_example_id"]) == (
        str(run_ids[0]), str(run_ids[1]),
    )  # fmt: skip
    assert thread.status_code == 422
    assert "only items of the type RUN" in thread.json()["detail"]


def test_counts_of_sections_agree(api, url, items_url, items, make_reviewer):
    set_status(item=items[0], reviewer_id=make_reviewer().pk, status=COMPLETED)
    set_status(item=items[1], reviewer_id=make_reviewer().pk, status=VIEWED)

    def count(**query):
        return api.get(f"{items_url}/count", **query).json()["count"]

    statuses = ("all", "needs_my_review", "needs_others_review", "archived")
    assert [count(status=status) for status in statuses] == [3, 1, 1, 1]
    assert api.get(f"{url}/size").json() == {"size": 1}
    assert api.get(f"{url}/size", status="completed").json() == {"size": 1}
    assert api.get(f"{url}/total_size").json() == {"size": 3}
    assert api.get(f"{url}/total_archived").json() == {"size": 1}
    assert api.get(f"{url}/total_archived", start_time="2100-01-01T00:00:00Z").json() == {"size": 0}
    assert count(status="archived", end_time="2100-01-01T00:00:00Z") == 1
    assert (
        api.get(f"{items_url}/count", status="all", end_time="2100-01-01T00:00:00Z").status_code
        == 422
    )
    sections = [
        [run["id"] for run in api.get(f"{url}/runs", status=status).json()]
        for status in ("completed", "needs_others_review", "needs_my_review")
    ]
    assert sections == [[str(item.run_id)] for item in items]
    assert len(api.get(f"{url}/runs", archived="false").json()) == 2
    assert len(api.get(f"{url}/runs", archived="true").json()) == 1


def test_archived_items_are_exported_with_their_feedback(api, workspace, run_ids, make_reviewer):
    queue_id = api.post(
        QUEUES,
        {"name": "a", "num_reviewers_per_item": 2, "rubric_items": [{"feedback_key": "tone"}]},
    ).json()["id"]
    queue = make_queue(workspace, "b", num_reviewers_per_item=2)
    queue.rubric_items = [{"feedback_key": "tone"}]
    queue.save()
    item = fill_queue(queue, run_ids)[0]
    feedback = {"run_id": str(item.run_id), "key": "tone", "score": 1, "comment": "=1+1"}
    assert api.post("/feedback", feedback).status_code == 200
    reviewer = make_reviewer()
    for reviewer_id in (reviewer.pk, uuid4()):
        set_status(item=item, reviewer_id=reviewer_id, status=COMPLETED)

    def export(**body):
        response = api.post(f"{QUEUES}/{queue.pk}/export", body)
        assert response.headers["Content-Type"] == "text/csv; charset=utf-8"
        return list(csv.DictReader(io.StringIO(b"".join(response).decode())))

    (row,) = export()
    assert row["run_id"] == str(item.run_id)
    assert row["inputs"] == '{"question": "why?"}'
    assert (row["tone.score"], row["tone.value"], row["tone.comment"]) == ("1.0", "", "'=1+1")
    by_reviewer = export(include_annotator_detail=True)
    assert next(item["reviewer"] for item in by_reviewer) == reviewer.display_name
    assert len(by_reviewer) == 2
    assert export(start_time="2100-01-01T00:00:00Z") == []
    assert next(iter(api.post(f"{QUEUES}/{queue_id}/export", {}))).startswith(b"run_id,")
