"""Pages of annotation queues in Chromium: axe, both widths and themes, and a review with keys."""

from __future__ import annotations

from datetime import UTC, datetime

from playwright.sync_api import expect

from apps.annotation.models import AnnotationQueue, QueueItem
from apps.annotation.rubric import RubricItem
from apps.annotation.services.reviews import COMPLETED, set_status
from apps.feedback.models import Feedback, FeedbackConfig
from tests.browser.test_accessibility import VARIANTS, find_problems
from tests.browser.test_trace_page import ignore_status_422
from tests.factories.annotation import fill_queue, make_queue
from tests.factories.tracing import ingest, read_run, stored_run, wire_run

ANSWER = {"messages": [{"role": "assistant", "content": "Your parcel left the depot today."}]}
QUESTION = {"messages": [{"role": "user", "content": "Where is my parcel?"}]}


def make_rubric(workspace) -> list[RubricItem]:
    """A category, a number from 1 to 5, a text and a number without a range."""
    configs = {
        "tone": {
            "type": "categorical", "min": None, "max": None,
            "categories": [{"value": 0, "label": "cold"}, {"value": 1, "label": "friendly"}],
        },
        "help": {"type": "continuous", "min": 1, "max": 5, "categories": None},
        "reason": {"type": "freeform", "min": None, "max": None, "categories": None},
    }  # fmt: skip
    for key, config in configs.items():
        FeedbackConfig(workspace=workspace, key=key, config=config).save()
    return [
        RubricItem(feedback_key="tone", description="How friendly is it?", is_required=True),
        RubricItem(feedback_key="help", is_required=True),
        RubricItem(feedback_key="reason", description="What would you change?"),
        RubricItem(feedback_key="seconds"),
    ]


def review_queue(workspace, count: int = 3) -> AnnotationQueue:
    queue = make_queue(
        workspace,
        "Support answers",
        description="Answers to customers, before the release",
        rubric_instructions="Read the **whole** answer.\n\n- Is it true?\n- Is it polite?",
        rubric_items=make_rubric(workspace),
    )
    run_ids = [
        stored_run(workspace, name=f"answer {number}", inputs=QUESTION, outputs=ANSWER)
        for number in range(1, count + 1)
    ]
    fill_queue(queue, run_ids)
    return queue


def annotation_paths(session):
    """Yield the path of every page of annotation queues, with and without rows."""
    base, workspace = f"{session.path}/annotation", session.workspace
    yield from (base, f"{base}/new", f"{base}/add")
    empty = make_queue(workspace, "Empty")
    yield f"{base}/{empty.pk}"
    queue = review_queue(workspace)
    first, second, _ = queue.items.order_by("added_at")
    yield from (base, f"{base}?q=none", f"{base}/add?run={first.run_id}")
    yield from (f"{base}/{queue.pk}", f"{base}/{queue.pk}/settings")
    set_status(item=second, reviewer_id=session.user.pk, status=COMPLETED)
    yield f"{base}/{queue.pk}?item={second.pk}"


@VARIANTS
def test_every_annotation_page_passes_axe_and_fits_the_viewport(session, variants):
    assert find_problems(session.page, annotation_paths(session), variants) == {}


def given(session, item: QueueItem) -> dict[str, float | str | None]:
    rows = Feedback.objects.for_workspace(session.workspace).filter(run_id=item.run_id)
    return {row.key: row.comment or row.score for row in rows}


def test_items_are_reviewed_with_keys(session):
    queue = review_queue(session.workspace)
    first, second, third = queue.items.order_by("added_at")
    page = session.goto(f"{session.path}/annotation/{queue.pk}")
    expect(page.get_by_text("1 of 3")).to_be_visible()
    expect(page.get_by_text("Reserved for you until")).to_be_visible()

    page.keyboard.press("Enter")
    expect(page.get_by_text("Required: tone, help")).to_be_visible()
    session.wait_for_elements()
    # No wait between them: each step waits for the score before it.
    for key in ("2", "4", "Enter"):
        page.keyboard.press(key)
    expect(page.get_by_text("2 of 3")).to_be_visible()
    assert given(session, first) == {"tone": 1.0, "help": 4.0}

    page.keyboard.press("s")
    expect(page.get_by_role("heading", name="answer 3")).to_be_visible()
    page.keyboard.press("ArrowLeft")
    expect(page.get_by_role("heading", name="answer 1")).to_be_visible()
    expect(page.get_by_text("Scores of all reviewers are below")).to_be_visible()
    page.keyboard.press("ArrowRight")
    page.get_by_role("link", name="Next").click()
    expect(page.get_by_role("heading", name="answer 2")).to_be_visible()
    expect(page.get_by_text("3 of 3")).to_be_visible()
    page.get_by_role("link", name="Previous").click()
    expect(page.get_by_role("heading", name="answer 3")).to_be_visible()
    second.refresh_from_db()
    third.refresh_from_db()
    assert (second.completed_at, third.completed_at) == (None, None)
    ignore_status_422(session)


def test_typed_text_survives_scores_and_is_saved_by_the_end_of_the_review(session):
    queue = review_queue(session.workspace, 1)
    item = queue.items.get()
    page = session.goto(f"{session.path}/annotation/{queue.pk}")

    page.get_by_label("reason").fill("shorter")
    page.get_by_role("button", name="friendly").click()
    expect(page.get_by_role("button", name="friendly")).to_have_attribute("aria-pressed", "true")
    expect(page.get_by_label("reason")).to_have_value("shorter")
    page.get_by_role("button", name="3", exact=False).first.click()
    page.get_by_label("Score of seconds").fill("2.5")
    page.keyboard.press("Control+Enter")

    expect(page.get_by_role("heading", name="Nothing is left for you")).to_be_visible()
    assert given(session, item) == {
        "tone": 1.0, "help": 3.0, "reason": "shorter", "seconds": 2.5,
    }  # fmt: skip
    item.refresh_from_db()
    assert item.completed_at is not None


def test_selection_of_the_run_list_becomes_items(session):
    runs = [
        wire_run(name=f"run {number}", start_time=datetime.now(UTC).isoformat())
        for number in range(3)
    ]
    ingest(session.workspace, *runs)
    project_id = read_run(session.workspace, runs[0]["id"]).row.project_id
    page = session.goto(f"{session.path}/projects/p/{project_id}")
    page.get_by_label("Select all on the page").check()
    page.get_by_role("button", name="Add to queue").click()
    page.get_by_text("3 runs wait in the queue").wait_for()
    page.get_by_label("Name of the new queue").fill("collected")
    page.get_by_role("button", name="Add to queue").click()
    expect(page.get_by_text("1 of 3")).to_be_visible()

    page.keyboard.press("o")
    page.get_by_role("link", name="Add to queue").click()
    dialog = page.get_by_role("dialog", name="Add to annotation queue")
    dialog.get_by_label("collected").check()
    dialog.get_by_role("button", name="Add to queue").click()
    page.get_by_role("link", name="Open the queue").click()
    expect(page.get_by_text("1 of 3")).to_be_visible()
    queue = AnnotationQueue.objects.for_workspace(session.workspace).get()
    assert {str(item.run_id) for item in queue.items.all()} == {run["id"] for run in runs}
