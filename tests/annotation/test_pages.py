"""Pages of annotation queues: list, settings, review of items, and adding of runs."""

from __future__ import annotations

from uuid import uuid4

import pytest
from django.utils import timezone

from apps.annotation.models import AnnotationQueue, ItemReview, QueueItem
from apps.annotation.rubric import RubricItem
from apps.annotation.services.queues import update_queue
from apps.annotation.services.reviewers import assign_reviewers
from apps.annotation.services.reviews import COMPLETED, VIEWED, set_status
from apps.feedback.models import Feedback, FeedbackConfig
from apps.organizations.models import User
from tests.console.conftest import create_workspace_user, signed_in
from tests.factories.annotation import fill_queue, make_queue


@pytest.fixture
def base(workspace):
    return f"/o/{workspace.pk}/annotation"


@pytest.fixture
def reviewer(workspace) -> User:
    return create_workspace_user(workspace, "annotator")


@pytest.fixture
def client(reviewer):
    """A browser in which an annotator is signed in."""
    return signed_in(reviewer)


@pytest.fixture
def scored_queue(workspace, run_ids) -> AnnotationQueue:
    """The three runs, to be scored by a required category and an optional text."""
    categories = [{"value": 0.0, "label": "bad"}, {"value": 1.0, "label": "good"}]
    configs = {
        "tone": {"type": "categorical", "min": None, "max": None, "categories": categories},
        "why": {"type": "freeform", "min": None, "max": None, "categories": None},
    }
    for key, config in configs.items():
        FeedbackConfig(workspace=workspace, key=key, config=config).save()
    queue = make_queue(
        workspace,
        "support",
        rubric_instructions="Read *all* of it.",
        rubric_items=[
            RubricItem(feedback_key="tone", description="How friendly?", is_required=True),
            RubricItem(feedback_key="why", regex_validator="^[a-z ]+$"),
        ],
    )
    fill_queue(queue, run_ids)
    return queue


@pytest.fixture
def first(scored_queue, run_ids) -> QueueItem:
    return scored_queue.items.get(run_id=run_ids[0])


@pytest.fixture
def item_url(base, scored_queue, first):
    return f"{base}/{scored_queue.pk}/i/{first.pk}"


def test_list_shows_counts_of_items(client, base, scored_queue, first, reviewer):
    set_status(item=first, reviewer_id=reviewer.pk, status=COMPLETED)

    page = client.get(base).content.decode()

    assert "support" in page
    row = page[page.index("support") :]
    numbers = [part.split("<")[0] for part in row.split('class="num"')[1:4]]
    assert [number.split(">")[-1] for number in numbers] == ["2", "1", "1"]
    assert "New queue" not in page
    assert "No matching queue" in client.get(base, {"q": "nothing"}).content.decode()


def test_editor_creates_changes_and_deletes_a_queue(page, base, workspace):
    fields = {"name": "q", "rubric": "tone*: How friendly?\nwhy", "num_reviewers_per_item": 2}

    assert page.post(f"{base}/new", fields | {"rubric": "a\na"}).status_code == 422
    created = page.post(f"{base}/new", fields)

    queue = AnnotationQueue.objects.for_workspace(workspace).get()
    assert created.headers["Location"] == f"{base}/{queue.pk}"
    assert [(item["feedback_key"], item["is_required"]) for item in queue.rubric_items] == [
        ("tone", True), ("why", False),
    ]  # fmt: skip
    form = page.get(f"{base}/{queue.pk}/settings").content.decode()
    assert "tone*: How friendly?\nwhy" in form
    page.post(f"{base}/{queue.pk}/settings", fields | {"name": "other"})
    queue.refresh_from_db()
    assert (queue.name, queue.num_reviewers_per_item) == ("other", 2)
    page.post(f"{base}/{queue.pk}/delete")
    assert not AnnotationQueue.objects.for_workspace(workspace).exists()


@pytest.mark.parametrize(
    "line", [f"a{' ' * 50_000}b", f"a{' *' * 25_000}b", f"a{' :' * 25_000}b", "*:" * 25_000, ":"]
)
def test_hostile_lines_of_the_rubric_are_read_in_linear_time(page, base, workspace, line):
    """A pattern that backtracks would not end."""
    fields = {"name": "q", "rubric": line, "num_reviewers_per_item": 1}

    assert page.post(f"{base}/new", fields).status_code in {302, 422}


def test_settings_keep_what_a_line_of_the_form_cannot_say(page, base, workspace):
    item = RubricItem(
        feedback_key="tone:voice",
        description="How friendly?\nRead all of it.",
        score_descriptions={"0": "cold"},
        regex_validator="^[a-z]+$",
    )
    queue = make_queue(workspace, "q", rubric_items=[item, RubricItem(feedback_key="why")])
    (before, _) = queue.rubric_items

    form = page.get(f"{base}/{queue.pk}/settings").content.decode()
    lines = "tone:voice: How friendly? Read all of it.\nwhy"
    assert lines in form
    fields = {"name": "q", "rubric": lines.replace("why", "why *"), "num_reviewers_per_item": 1}
    page.post(f"{base}/{queue.pk}/settings", fields)

    queue.refresh_from_db()
    assert queue.rubric_items[0] == before
    assert (queue.rubric_items[1]["feedback_key"], queue.rubric_items[1]["is_required"]) == (
        "why", True,
    )  # fmt: skip


def test_review_page_shows_the_first_item_and_reserves_nothing(client, base, scored_queue, first):
    page = client.get(f"{base}/{scored_queue.pk}").content.decode()

    assert "1 of 3" in page
    assert "Read *all* of it." in page
    assert "How friendly?" in page
    assert f"/i/{first.pk}/reserve" in page
    assert 'name="score" value="1.0"' in page
    assert not ItemReview.objects.for_workspace(scored_queue.workspace_id).exists()
    assert client.get(f"{base}/{scored_queue.pk}", {"item": "x"}).status_code == 404


def test_reservation_says_until_when_or_loads_the_page_of_another_again(client, item_url, first):
    mine = client.post(f"{item_url}/reserve").content.decode()
    assert "Reserved for you until" in mine

    reviews = ItemReview.objects.for_workspace(first.workspace_id)
    reviews.delete()
    set_status(item=first, reviewer_id=uuid4(), status=VIEWED)
    theirs = client.post(f"{item_url}/reserve")

    assert (theirs.status_code, theirs.headers["HX-Refresh"]) == (204, "true")
    assert reviews.count() == 1


def test_item_that_another_reviews_is_read_only_and_hides_its_scores(
    client, base, scored_queue, item_url, workspace
):
    first = scored_queue.items.first()
    other = create_workspace_user(workspace, "annotator")
    signed_in(other).post(f"{item_url}/score", {"key": "tone", "score": "0.0"})
    url = f"{base}/{scored_queue.pk}?item={first.pk}"

    page = client.get(url).content.decode()
    refused = client.post(
        f"{item_url}/score", {"key": "tone", "score": "1"}, headers={"HX-Request": "true"}
    )

    assert f"{other.display_name} is reviewing this. Read only." in page
    assert "Scores are hidden" in page
    assert "/reserve" not in page
    assert "/done" not in page
    assert 'name="score"' not in page
    assert refused.status_code == 422
    assert "Another reviewer has reserved this item." in refused.content.decode()
    assert Feedback.objects.for_workspace(workspace).get().user_id == other.pk
    ItemReview.objects.for_workspace(workspace).update(reserved_until=timezone.now())
    assert 'name="score"' in client.get(url).content.decode()


def test_score_reserves_the_item_and_is_refused_after_the_reviews_of_others(
    client, item_url, first, workspace, reviewer
):
    client.post(f"{item_url}/score", {"key": "tone", "score": "1"})
    review = ItemReview.objects.for_workspace(workspace).get()
    assert review.reviewer_id == reviewer.pk
    assert review.is_reserved(timezone.now())
    review.delete()
    set_status(item=first, reviewer_id=uuid4(), status=COMPLETED)

    refused = client.post(
        f"{item_url}/score", {"key": "tone", "score": "0"}, headers={"HX-Request": "true"}
    )

    assert refused.status_code == 422
    assert "This item has all its reviews" in refused.content.decode()
    assert Feedback.objects.for_workspace(workspace).get().score == 1.0


def test_score_of_a_user_who_is_not_assigned_is_refused(client, item_url, first, workspace):
    assign_reviewers(
        queue=first.queue, identity_ids=[create_workspace_user(workspace, "annotator").pk]
    )
    update_queue(queue=first.queue, changes={"reviewer_access_mode": "assigned"})

    refused = client.post(
        f"{item_url}/score", {"key": "tone", "score": "0"}, headers={"HX-Request": "true"}
    )

    assert "Only the assigned reviewers" in refused.content.decode()
    assert not Feedback.objects.for_workspace(workspace).exists()


def test_second_score_replaces_the_first(client, item_url, first, reviewer):
    htmx = {"HX-Request": "true"}

    client.post(f"{item_url}/score", {"key": "tone", "score": "0.0"}, headers=htmx)
    response = client.post(f"{item_url}/score", {"key": "tone", "score": "1.0"}, headers=htmx)

    assert response.status_code == 200
    page = response.content.decode()
    assert 'value="1.0" aria-pressed="true"' in page
    assert 'value="0.0" aria-pressed="false"' in page
    feedback = Feedback.objects.for_workspace(first.workspace_id).get()
    assert (feedback.run_id, feedback.key, feedback.score) == (first.run_id, "tone", 1.0)
    assert (feedback.value, feedback.user_id, feedback.source_type) == ("good", reviewer.pk, "app")
    assert feedback.source["metadata"] == {"annotation_queue_id": str(first.queue_id)}


def test_text_has_to_match_the_pattern(client, item_url, first):
    htmx = {"HX-Request": "true"}

    refused = client.post(f"{item_url}/score", {"key": "why", "comment": "42"}, headers=htmx)

    assert refused.status_code == 422
    assert "does not match the pattern" in refused.content.decode()
    assert not Feedback.objects.for_workspace(first.workspace_id).exists()
    client.post(f"{item_url}/score", {"key": "why", "comment": "short"}, headers=htmx)
    assert Feedback.objects.for_workspace(first.workspace_id).get().comment == "short"


def test_review_ends_when_required_keys_have_feedback(client, base, scored_queue, item_url, first):
    refused = client.post(f"{item_url}/done")
    assert refused.status_code == 422
    assert "Required: tone" in refused.content.decode()
    assert f'href="{base}/{scored_queue.pk}?item=' in refused.content.decode()

    client.post(f"{item_url}/score", {"key": "tone", "score": "1"})
    done = client.post(f"{item_url}/done")

    assert done.headers["Location"] == f"{base}/{scored_queue.pk}"
    first.refresh_from_db()
    assert first.completed_at is not None
    assert (
        str(first.pk)
        not in client.get(done.headers["Location"]).content.decode().split("review-bar")[0]
    )


def test_scores_of_others_are_shown_after_the_review_alone(client, base, api, scored_queue, first):
    other = {"run_id": str(first.run_id), "key": "tone", "score": 0, "comment": "by the judge"}
    assert api.post("/feedback", other).status_code == 200
    url = f"{base}/{scored_queue.pk}?item={first.pk}"
    assert "by the judge" not in client.get(url).content.decode()

    client.post(f"{base}/{scored_queue.pk}/i/{first.pk}/score", {"key": "tone", "score": "1"})
    client.post(f"{base}/{scored_queue.pk}/i/{first.pk}/done")

    assert "by the judge" in client.get(url).content.decode()


def test_skipped_item_comes_last(client, base, scored_queue, item_url, first):
    client.post(f"{item_url}/skip")

    page = client.get(f"{base}/{scored_queue.pk}").content.decode()

    assert f"/i/{first.pk}/reserve" not in page
    assert (
        "3 of 3"
        in client.get(f"{base}/{scored_queue.pk}", {"item": str(first.pk)}).content.decode()
    )


def test_empty_queue_says_so(client, base, queue):
    assert "The queue is empty" in client.get(f"{base}/{queue.pk}").content.decode()


def test_viewer_sees_the_item_and_reviews_nothing(workspace, base, scored_queue, item_url):
    viewer = signed_in(create_workspace_user(workspace, "viewer"))

    page = viewer.get(f"{base}/{scored_queue.pk}")

    assert page.status_code == 200
    assert "/done" not in page.content.decode()
    for step in ("reserve", "score", "done", "skip"):
        assert viewer.post(f"{item_url}/{step}").status_code == 403


def test_runs_are_added_to_a_chosen_and_to_a_new_queue(page, base, workspace, queue, run_ids):
    ids = [str(run_id) for run_id in run_ids]

    chosen = page.get(f"{base}/add", {"run": ids}).content.decode()
    assert "3 runs" in chosen
    assert queue.name in chosen
    page.post(f"{base}/add", {"run": ids[:2], "queue": str(queue.pk), "add": "1"})
    page.post(f"{base}/add", {"run": ids, "queue": "new", "name": "fresh", "add": "1"})

    assert queue.items.count() == 2
    assert AnnotationQueue.objects.for_workspace(workspace).get(name="fresh").items.count() == 3
    refused = page.post(f"{base}/add", {"run": ids, "queue": "new", "name": "", "add": "1"})
    assert refused.status_code == 422
    assert page.post(f"{base}/add", {"queue": str(queue.pk), "add": "1"}).status_code == 422


def test_experiment_is_added_to_a_queue(page, base, queue, make_experiment, examples):
    experiment = make_experiment("one", *examples)

    page.post(f"{base}/add", {"experiment": str(experiment.id), "queue": str(queue.pk), "add": "1"})

    assert queue.items.count() == len(examples)


def test_run_list_and_run_page_offer_the_queue(page, workspace, project, run_ids):
    url = f"/o/{workspace.pk}/projects/p/{project.pk}"

    assert f"/o/{workspace.pk}/annotation/add" in page.get(url).content.decode()
    assert f"annotation/add?run={run_ids[0]}" in page.get(f"{url}/r/{run_ids[0]}").content.decode()
