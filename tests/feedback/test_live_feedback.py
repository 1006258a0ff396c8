"""Feedback and sharing by the public `langsmith` client against the running platform."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import time
import uuid
from collections.abc import Callable
from typing import Any, TypeVar
from urllib.request import Request, urlopen

import pytest
from langsmith import AsyncClient, Client
from langsmith.schemas import FeedbackSourceType
from langsmith.utils import LangSmithConflictError, LangSmithError, LangSmithNotFoundError

from tests.compatibility.chosen_clients import requires_client
from tests.live_client import client

__all__ = ["client"]

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
T = TypeVar("T")


@pytest.fixture
def project(client: Client) -> str:
    return client.create_project(f"feedback {uuid.uuid4()}").name


@pytest.fixture
def run_id(client: Client, project: str) -> uuid.UUID:
    """The id of a finished, stored run."""
    run_id = uuid.uuid4()
    client.create_run(
        "question", {"q": "why?"}, "chain", id=run_id, project_name=project, outputs={"a": "so"}
    )
    client.update_run(run_id, end_time=dt.datetime.now(dt.UTC))
    client.flush()
    wait_for_result(lambda: list(client.list_runs(run_ids=[run_id], project_name=project)))
    return run_id


def wait_for_result(read: Callable[[], T]) -> T:
    """Poll until `read` returns a truthy result, and return it."""
    deadline = time.monotonic() + 120
    while not (result := read()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return result


def read_project_id(client: Client, name: str) -> uuid.UUID:
    return client.read_project(project_name=name).id


def test_feedback_is_created_read_changed_and_deleted(client, run_id):
    source_run = uuid.uuid4()
    feedback = client.create_feedback(
        run_id,
        "correct",
        score=True,
        value="yes",
        comment="well",
        correction={"a": 1},
        source_info={"by": "me"},
        feedback_source_type=FeedbackSourceType.MODEL,
        source_run_id=source_run,
        extra={"more": [1]},
    )

    read = client.read_feedback(feedback.id)
    client.update_feedback(feedback.id, score=0.123456)
    changed = client.read_feedback(feedback.id)

    assert (read.key, read.score, read.value, read.comment) == ("correct", 1.0, "yes", "well")
    assert (read.correction, read.extra) == ({"a": 1}, {"more": [1]})
    assert (read.run_id, read.trace_id) == (run_id, run_id)
    assert read.feedback_source.type == "model"
    assert read.feedback_source.metadata == {"by": "me", "__run": {"run_id": str(source_run)}}
    assert (changed.score, changed.value, changed.comment) == (0.1235, "yes", "well")
    assert changed.modified_at > read.modified_at
    client.delete_feedback(feedback.id)
    with pytest.raises(LangSmithNotFoundError):
        client.read_feedback(feedback.id)


def test_background_feedback_is_stored_with_its_trace(client, run_id):
    stored = client.create_feedback(run_id, "later", score=0.5, trace_id=run_id)
    client.flush()

    (stored,) = wait_for_result(
        lambda: list(client.list_feedback(run_ids=[run_id], feedback_key=["later"]))
    )

    assert (stored.id, stored.score, stored.trace_id) == (stored.id, 0.5, run_id)
    # The project is set when the run has been looked up.
    assert wait_for_result(lambda: client.read_feedback(stored.id).session_id)


def test_feedback_before_its_run_is_attached_to_it(client, project):
    run_id = uuid.uuid4()
    feedback = client.create_feedback(run_id, "early", score=1)
    assert client.read_feedback(feedback.id).session_id is None

    client.create_run("late", {}, "chain", id=run_id, project_name=project)
    client.flush()

    session_id = wait_for_result(lambda: client.read_feedback(feedback.id).session_id)
    assert session_id == read_project_id(client, project)


def test_feedback_is_filtered(client, run_id):
    for number in range(3):
        client.create_feedback(run_id, f"k{number}", score=number)
    client.create_feedback(run_id, "m", score=1, feedback_source_type=FeedbackSourceType.MODEL)

    def keys(**query: Any) -> list[str]:
        return [row.key for row in client.list_feedback(run_ids=[run_id], **query)]

    assert keys() == ["m", "k2", "k1", "k0"]
    assert keys(feedback_key=["k0", "k2"]) == ["k2", "k0"]
    assert keys(feedback_source_type=[FeedbackSourceType.MODEL]) == ["m"]
    assert keys(limit=2) == ["m", "k2"]


def test_feedback_statistics_are_read_with_run_and_project(client, project, run_id):
    for score in (0, 1):
        client.create_feedback(run_id, "s", score=score)
    session_id = read_project_id(client, project)
    client.create_feedback(None, "total", score=0.75, project_id=session_id)

    (run,) = client.list_runs(project_name=project, is_root=True)
    (on_project,) = [
        row for row in _list_feedback(client, session=str(session_id)) if row["run_id"] is None
    ]

    assert run.feedback_stats["s"]["n"] == 2
    assert run.feedback_stats["s"]["avg"] == 0.5
    assert (on_project["key"], on_project["score"]) == ("total", 0.75)
    filtered = client.list_runs(
        project_name=project, filter='and(eq(feedback_key, "s"), eq(feedback_score, 1))'
    )
    assert [row.id for row in filtered] == [run_id]


def _list_feedback(client: Client, **params: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = client.request_with_retries(
        "GET", "/feedback", params=params
    ).json()
    return rows


def test_feedback_is_created_with_a_presigned_token(client, run_id):
    token = client.create_presigned_feedback_token(run_id, "liked")
    others = client.create_presigned_feedback_tokens(
        run_id, ["a", "b"], expiration=dt.timedelta(days=1, hours=1)
    )

    client.create_feedback_from_token(
        token.url, score=1, value="up", comment="!", metadata={"p": 1}
    )
    body = json.dumps({"score": 0.5}).encode()
    request = Request(others[0].url, body, {"Content-Type": "application/json"})
    with urlopen(request) as response:
        assert response.status == 200

    by_key = {row.key: row for row in client.list_feedback(run_ids=[run_id])}
    assert (by_key["liked"].score, by_key["liked"].value) == (1.0, "up")
    assert by_key["liked"].id != token.id
    assert by_key["liked"].feedback_source.metadata == {"p": 1}
    assert by_key["a"].score == 0.5
    listed = list(client.list_presigned_feedback_tokens(run_id))
    assert {row.id for row in listed} == {token.id, *(row.id for row in others)}


def test_configs_are_created_listed_changed_and_deleted(client):
    key = f"stars {uuid.uuid4()}"
    stars = {"type": "continuous", "min": 0.0, "max": 5.0}

    created = client.create_feedback_config(key, feedback_config=stars)
    assert client.create_feedback_config(key, feedback_config=stars).modified_at
    with pytest.raises(LangSmithError, match="already exists"):
        client.create_feedback_config(key, feedback_config={"type": "freeform"})
    changed = client.update_feedback_config(key, is_lower_score_better=True)
    (listed,) = client.list_feedback_configs(feedback_key=[key])

    assert created.feedback_config["max"] == 5.0
    assert changed.is_lower_score_better is True
    assert (listed.feedback_key, listed.is_lower_score_better) == (key, True)
    client.delete_feedback_config(key)
    assert list(client.list_feedback_configs(feedback_key=[key])) == []


@requires_client("langsmith", ">0.11.2", "removal of a comment")
def test_a_comment_is_removed(client, run_id):
    feedback = client.create_feedback(run_id, "correct", score=1, comment="well")

    client.update_feedback(feedback.id, comment=None)

    assert client.read_feedback(feedback.id).comment is None


@requires_client("langsmith", ">0.11.2", "changes of categories")
def test_categories_are_added_and_removed(client, run_id):
    key = f"mood {uuid.uuid4()}"
    mood = {"type": "categorical", "categories": [{"value": n, "label": f"l{n}"} for n in (0, 1)]}
    client.create_feedback_config(key, feedback_config=mood)

    added = client.add_feedback_categories(key, [{"value": 2, "label": "l2"}])
    feedback = client.create_feedback(run_id, key, value="l2")

    assert len(added.feedback_config["categories"]) == 3
    assert client.read_feedback(feedback.id).score == 2.0
    removed = client.remove_feedback_categories(key, [0])
    assert [row["label"] for row in removed.feedback_config["categories"]] == ["l1", "l2"]


def test_the_error_of_a_contradicting_config_names_the_key(client, run_id):
    key = f"k {uuid.uuid4()}"
    client.create_feedback(run_id, key, score=1, feedback_config={"type": "continuous"})

    with pytest.raises(LangSmithError, match="differs from the existing config"):
        client.create_feedback(
            run_id, key, score=1, feedback_config={"type": "continuous", "max": 1.0}
        )


def test_formulas_are_computed(client, project, run_id):
    formula = client.request_with_retries(
        "POST",
        "/feedback/formulas",
        json={
            "session_id": str(read_project_id(client, project)),
            "feedback_key": "total",
            "aggregation_type": "avg",
            "formula_parts": [
                {"part_type": "weighted_key", "key": "a", "weight": 3},
                {"part_type": "weighted_key", "key": "b", "weight": 1},
            ],
        },
    ).json()

    client.create_feedback(run_id, "a", score=1)
    client.create_feedback(run_id, "b", score=0)

    (total,) = client.list_feedback(run_ids=[run_id], feedback_key=["total"])
    assert total.score == 0.75
    client.request_with_retries("DELETE", f"/feedback/formulas/{formula['id']}")
    assert list(client.list_feedback(run_ids=[run_id], feedback_key=["total"])) == []


def test_a_run_is_shared_read_and_unshared(client, project, run_id):
    child_id = uuid.uuid4()
    client.create_run(
        "child",
        {},
        "tool",
        id=child_id,
        project_name=project,
        parent_run_id=run_id,
    )
    client.flush()
    wait_for_result(lambda: list(client.list_runs(run_ids=[child_id], project_name=project)))
    assert client.run_is_shared(run_id) is False

    link = client.share_run(run_id)
    token = link.rsplit("/", 2)[1]

    assert client.share_run(run_id) == link == client.read_run_shared_link(run_id)
    assert client.read_shared_run(token).id == run_id
    assert client.read_shared_run(link, run_id=child_id).parent_run_id == run_id
    assert {run.id for run in client.list_shared_runs(token)} == {run_id, child_id}
    assert [run.id for run in client.list_shared_runs(token, run_ids=[str(child_id)])] == [child_id]
    client.unshare_run(run_id)
    client.unshare_run(run_id)
    assert client.run_is_shared(run_id) is False
    with pytest.raises(LangSmithNotFoundError):
        client.read_shared_run(token)


def test_a_chosen_share_id_is_used_and_is_unique(client, run_id, project):
    other_run_id = uuid.uuid4()
    client.create_run("other", {}, "chain", id=other_run_id, project_name=project)
    client.flush()
    wait_for_result(lambda: list(client.list_runs(run_ids=[other_run_id], project_name=project)))
    share_id = uuid.uuid4()

    link = client.share_run(run_id, share_id=str(share_id))

    assert link.endswith(f"/public/{share_id}/r")
    with pytest.raises(LangSmithConflictError):
        client.share_run(other_run_id, share_id=str(share_id))


def test_a_run_shared_by_api_v2_is_readable_without_a_key(client, live, project, run_id):
    async def run_client() -> None:
        session_id = str(read_project_id(client, project))
        share = client.runs.share
        created = await share.create(str(run_id), session_id=session_id, trace_id=str(run_id))
        token = created.share_token
        assert token is not None
        page = await client.public.runs.query(token, selects=["NAME", "STATUS"])
        assert [(run.id, run.name) for run in page.items or []] == [(str(run_id), "question")]
        run_row = await client.public.runs.retrieve(
            str(run_id),
            share_token=token,
            selects=["NAME", "INPUTS"],
            start_time=dt.datetime.now(dt.UTC),
        )
        assert (run_row.id, run_row.inputs) == (str(run_id), {"q": "why?"})
        await share.delete(str(run_id), session_id=session_id)
        await share.delete(str(run_id), session_id=session_id)
        # The connections belong to this loop, and the client does not close them.
        await client.runs._client.close()

    asyncio.run(run_client())


def test_the_asynchronous_client_creates_feedback(live, run_id):
    async def run_client() -> None:
        async with AsyncClient(api_url=live.api_url, api_key=live.api_key) as client:
            feedback = await client.create_feedback(run_id, "async", score=1)
            assert (await client.read_feedback(feedback.id)).score == 1.0
            keys = [row.key async for row in client.list_feedback(run_ids=[run_id])]
            assert keys == ["async"]

    asyncio.run(run_client())
