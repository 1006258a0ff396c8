"""Inputs of users of tracing: feedback, times and charts. Each case names its report."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langsmith import schemas

from apps.trace_store import Payload
from apps.trace_store.dotted_order import format_segment
from apps.tracing.pages.feedback_form import FeedbackForm
from apps.web_ui.charts import bucket_edges
from tests.examples import fuzz_settings
from tests.factories.tracing import ingest, read_run, wire_run
from tests.tracing.stats.populations import NOON, build_rollups, process_pending_runs, project_id_of

pytestmark = pytest.mark.django_db


def test_scores_of_any_accepted_size_have_statistics(api, workspace):
    run = wire_run()
    api.post("/runs", run)
    for score in (1e100, -1e100, 1e100):
        body = {"key": "k", "run_id": run["id"], "score": score}
        assert api.post("/feedback", body).status_code == 200

    row = api.get(f"/runs/{run['id']}").json()

    assert (row["feedback_stats"]["k"]["n"], row["feedback_stats"]["k"]["max"]) == (3, 1e100)


# langfuse#12306 shows such details; a kind without a whole number made the run unreadable.
def test_usage_details_of_a_run_are_whole_numbers_and_costs(api, workspace):
    details = {"cache_read": 3, "odd": None, "nested": {"a": 1}, "text": "many", "half": 1.0}
    costs = {"cache_read": 0.25, "odd": None, "nested": {"a": 1}, "text": "much", "exact": "0.5"}
    usage = {
        "input_tokens": 5,
        "output_tokens": 1,
        "input_token_details": details,
        "input_cost_details": costs,
    }
    run = wire_run(run_type="llm", outputs={"usage_metadata": usage})
    api.post("/runs", run)

    row = api.get(f"/runs/{run['id']}").json()

    assert schemas.Run(**row).id == UUID(run["id"])
    assert row["prompt_token_details"] == {"cache_read": 3, "half": 1}
    assert row["prompt_cost_details"] == {"cache_read": 0.25, "exact": 0.5}


def test_weight_of_a_formula_is_finite(api, workspace, project):
    body = {
        "session_id": str(project.pk),
        "feedback_key": "sum",
        "aggregation_type": "sum",
        "formula_parts": [{"part_type": "weighted_key", "key": "a", "weight": "nan"}],
    }

    response = api.post("/feedback/formulas", body)

    assert response.status_code == 422
    assert "weight" in response.json()["detail"]


def test_correction_of_the_form_is_an_object_or_text(api, workspace):
    corrections = []
    for text in ('{"a": 1}', "[1, 2]", "5", "plain"):
        form = FeedbackForm({"key": "k", "correction": text})
        assert form.is_valid()
        corrections.append(form.cleaned_data["correction"])

    assert corrections == [{"a": 1}, "[1, 2]", "5", "plain"]


# -- times -------------------------------------------------------------------------

MOMENT = datetime(2026, 1, 2, 3, 4, 5, 250_000, tzinfo=UTC)
SECONDS = MOMENT.timestamp()


# greptimedb#7875 and clients in other languages: epoch seconds landed in January 1970.
@pytest.mark.parametrize("number", [SECONDS, SECONDS * 10**3, SECONDS * 10**6, SECONDS * 10**9])
def test_magnitude_of_a_time_tells_its_unit(api, workspace, number):
    run_id = str(uuid4())
    body = {"id": run_id, "name": "x", "run_type": "chain", "start_time": number}

    assert api.post("/runs", body).status_code == 202
    score = {"key": "k", "run_id": run_id, "score": 1, "created_at": int(number)}
    feedback = api.post("/feedback", score).json()

    assert read_run(workspace, run_id).row.start_time == MOMENT
    created_at = datetime.fromisoformat(feedback["created_at"])
    assert MOMENT - timedelta(seconds=1) < created_at <= MOMENT


@pytest.mark.parametrize("number", [0, 5, -1, 99_999_999, 1e20, 1e300])
def test_number_that_is_no_time_is_refused_by_name(api, workspace, number):
    body = {"id": str(uuid4()), "name": "x", "run_type": "chain", "start_time": number}

    response = api.post("/runs", body)

    assert response.status_code == 422
    assert "`start_time` is not a valid timestamp" in response.json()["detail"]


# Report 13 of the field: a run with a dotted order days from its start was accepted, and found by
# no range of start times.
@pytest.mark.parametrize("hours", [-500, -24, -23, 0, 23, 24, 500])
def test_run_is_found_by_its_start_or_refused(api, workspace, hours):
    run = wire_run(start=NOON)
    start = NOON + timedelta(hours=hours)
    run["start_time"] = start.isoformat()

    response = api.post("/runs/batch", {"post": [run]})

    if abs(hours) >= 24:
        assert response.status_code == 422
        assert "`start_time` is" in response.json()["detail"]
        assert "`dotted_order`" in response.json()["detail"]
        return
    assert response.status_code == 202
    assert read_starts(api, workspace, start) == [start]


def read_starts(api, workspace, around: datetime) -> list[datetime]:
    query = {
        "session": [str(project_id_of(workspace))],
        "start_time": (around - timedelta(minutes=1)).isoformat(),
        "end_time": (around + timedelta(minutes=1)).isoformat(),
    }
    runs = api.post("/runs/query", query).json()["runs"]
    starts = [datetime.fromisoformat(run["start_time"]) for run in runs]
    return [start if start.tzinfo else start.replace(tzinfo=UTC) for start in starts]


# The JavaScript client's own tests make dotted orders of seconds in place of milliseconds.
@pytest.mark.parametrize("is_start_wrong", [False, True])
def test_dotted_order_made_of_seconds_is_read_as_what_it_means(api, workspace, is_start_wrong):
    wrong = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=NOON.timestamp())
    root, child = wire_run(start=NOON), wire_run(start=NOON)
    orders = [format_segment(wrong, UUID(run["id"])) for run in (root, child)]
    root["dotted_order"] = orders[0]
    child |= {"trace_id": root["id"], "parent_run_id": root["id"], "dotted_order": ".".join(orders)}
    if is_start_wrong:
        root["start_time"] = child["start_time"] = wrong.isoformat()
    end = {"id": child["id"], "trace_id": root["id"], "dotted_order": child["dotted_order"]}

    for body in ({"post": [root, child]}, {"patch": [end | {"outputs": {"a": 1}}]}):
        assert api.post("/runs/batch", body).status_code == 202

    assert read_starts(api, workspace, NOON) == [NOON, NOON]
    stored = read_run(workspace, child["id"])
    assert stored.row.dotted_order.count(f"{NOON:%Y%m%dT%H%M%S%fZ}") == 2
    assert stored.value(Payload.OUTPUTS) == {"a": 1}


def test_update_cannot_put_the_start_days_from_the_dotted_order(api, workspace):
    run = wire_run(start=NOON)
    ingest(workspace, run)
    far = (NOON - timedelta(days=9)).isoformat()

    response = api.patch(f"/runs/{run['id']}", {"start_time": far})

    assert response.status_code == 422
    assert read_starts(api, workspace, NOON) == [NOON]


@pytest.mark.parametrize("is_one_request", [True, False])
def test_moved_run_without_a_start_begins_at_its_dotted_order(api, workspace, is_one_request):
    run, moved = wire_run(start=NOON - timedelta(days=9)), wire_run(start=NOON)
    order = moved["dotted_order"].replace(moved["id"], run["id"])
    update = {"id": run["id"], "trace_id": run["id"], "dotted_order": order}
    requests = [{"post": [run]}, {"patch": [update]}]
    if is_one_request:
        requests = [requests[0] | requests[1]]

    for body in requests:
        assert api.post("/runs/batch", body).status_code == 202

    assert read_starts(api, workspace, NOON) == [NOON]
    assert read_starts(api, workspace, NOON - timedelta(days=9)) == []


# -- projects ----------------------------------------------------------------------


# Report 15 of the field: "No such project." did not name what was wrong.
def test_unknown_project_is_refused_by_field(api, workspace):
    run = wire_run(session_id=str(uuid4()))
    addressed = wire_run(session_name=None, address="lrn:agents/a")

    details = [api.post("/runs", body).json()["detail"] for body in (run, addressed)]
    feedback = api.post("/feedback", {"key": "k", "session_id": str(uuid4()), "score": 1})

    assert details == ["No project has this `session_id`.", "No project has this `address`."]
    assert feedback.json()["detail"] == "No project has this `session_id`."


# -- windows -----------------------------------------------------------------------

TICK = timedelta(microseconds=1)
OFFSETS = [
    *(timedelta(minutes=minutes) for minutes in range(-1500, 1501, 125)),
    *(timedelta(hours=hours) + tick for hours in (-24, -1, 0, 1, 24) for tick in (-TICK, TICK)),
    *(timedelta(seconds=seconds) for seconds in (-0.5, 0.25, 3599.75)),
]
STRIDES = [
    {"minutes": 7},
    {"hours": 1},
    {"hours": 5},
    {"days": 1},
    {"days": 7},
    {"days": 1, "hours": 3},
]
ZONES = ["UTC", "Asia/Kolkata", "America/St_Johns", "Pacific/Kiritimati", "Europe/Berlin"]


@pytest.fixture(params=[process_pending_runs, build_rollups], ids=["runs", "rollups"])
def starts(request, workspace):
    """The start times of stored runs, with a score each; before and after they are rolled up."""
    starts = [NOON + offset for offset in OFFSETS]
    ingest(workspace, *(wire_run(start=start) for start in starts))
    request.param()
    return starts


def moments() -> st.SearchStrategy[timedelta]:
    """Bounds at and beside starts of runs and edges of buckets, and anywhere else."""
    anywhere = st.timedeltas(min_value=timedelta(hours=-30), max_value=timedelta(hours=30))
    near = st.builds(
        lambda offset, ticks: offset + ticks * TICK, st.sampled_from(OFFSETS), st.integers(-1, 1)
    )
    return st.one_of(near, anywhere)


# langfuse#5095, langfuse#1791 and litellm#29568: 24 runs for the one that is in the window.
@fuzz_settings(40)
@given(
    bounds=st.tuples(moments(), moments()).filter(lambda bounds: bounds[0] < bounds[1]),
    grid=st.tuples(st.sampled_from(STRIDES), st.sampled_from(ZONES)),
)
def test_charts_statistics_and_lists_of_a_window_agree(api, workspace, starts, bounds, grid):
    begin, end = (NOON + offset for offset in bounds)
    expected = sum(begin <= start <= end for start in starts)
    project_id = str(project_id_of(workspace))
    window = {"start_time": begin.isoformat(), "end_time": end.isoformat()}

    stride, zone = grid
    points = read_points(api, project_id, {**window, "stride": stride, "timezone": zone})
    query = {"session": [project_id], **window}
    stats = api.post("/runs/stats", {**query, "select": ["run_count"]}).json()
    listed = api.post("/runs/query", {**query, "limit": 100}).json()["runs"]

    assert (sum(points.values()), stats["run_count"], len(listed)) == (expected,) * 3
    buckets = sorted(points)
    for first, following in itertools.pairwise([*buckets, datetime.max.replace(tzinfo=UTC)]):
        inside = [start for start in starts if first <= start < following and begin <= start <= end]
        assert points[first] == len(inside), (first, grid)


def read_points(api, project_id: str, time_range: dict[str, Any]) -> dict[datetime, int]:
    chart = {
        "series": [{"name": "all", "metric": "run_count"}],
        "common_filters": {"session": [project_id]},
    }
    response = api.post("/charts/preview", {"bucket_info": time_range, "chart": chart})
    assert response.status_code == 200, response.content
    data = response.json()["data"]
    return {datetime.fromisoformat(point["timestamp"]): point["value"] for point in data}


def test_feedback_outside_of_the_window_is_in_no_bucket(api, workspace):
    runs = [wire_run(start=NOON + timedelta(minutes=minute)) for minute in (5, 30, 60, 61)]
    for run in runs:
        api.post("/runs", run)
        api.post("/feedback", {"key": "k", "run_id": run["id"], "score": 1})
    bucket_info = {
        "start_time": (NOON + timedelta(minutes=10)).isoformat(),
        "end_time": (NOON + timedelta(minutes=60)).isoformat(),
        "stride": {"days": 1},
    }
    chart = {"series": [{"name": "n", "metric": "feedback", "feedback_key": "k"}]}

    data = api.post("/charts/preview", {"bucket_info": bucket_info, "chart": chart}).json()["data"]

    assert [point["value"]["n"] for point in data if point["value"]] == [2]


@given(
    start=st.timedeltas(timedelta(0), timedelta(days=700)).map(MOMENT.__add__),
    length=st.timedeltas(TICK, timedelta(days=9)),
    minutes=st.sampled_from([1, 5, 15, 30, 60, 180, 1440]),
)
@fuzz_settings(50)
def test_buckets_of_a_page_hold_both_ends_of_the_window(start, length, minutes):
    edges = bucket_edges(start, start + length, timedelta(minutes=minutes))

    assert edges[0] <= start < start + length < edges[-1]
    assert edges == sorted(edges)
