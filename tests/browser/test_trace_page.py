"""The page of a trace in a real browser: feedback and the waterfall."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from playwright.sync_api import expect

from apps.feedback.models import Feedback, FeedbackConfig
from tests.browser.test_accessibility import axe_violations
from tests.browser.test_workflows import ingest_nested_trace
from tests.factories.tracing import ingest, read_run, wire_run


def run_path(session, run_id):
    project_id = read_run(session.workspace, run_id).row.project_id
    return f"{session.path}/projects/p/{project_id}/r/{run_id}"


def tree_path(session, run_id):
    """Return the address of the trace as a tree: conversations open as a transcript."""
    return f"{run_path(session, run_id)}?view=tree"


def add_config(workspace, key, *, is_enforced=False, **config):
    fields = {"min": None, "max": None, "categories": None} | config
    row = FeedbackConfig(workspace_id=workspace.pk, key=key, config=fields, is_enforced=is_enforced)
    row.save(force_insert=True)
    return row


def add_score(workspace, run, key, score):
    row = Feedback(workspace_id=workspace.pk, run_id=run["id"], key=key, score=score)
    row.save(force_insert=True)


def open_feedback(session, run_id):
    page = session.goto(tree_path(session, run_id))
    page.locator("#run").get_by_role("tab", name="Feedback").click()
    return page


def ignore_status_422(session):
    """Remove the browser's own report of a rejected form from the console errors."""
    session.console_errors[:] = [text for text in session.console_errors if "422" not in text]


def test_one_click_gives_a_score_and_updates_the_tab_and_the_tree(session):
    root, *_ = ingest_nested_trace(session.workspace)
    add_config(session.workspace, "helpful", type="continuous", min=0, max=1)
    page = open_feedback(session, root["id"])
    run = page.locator("#run")

    run.get_by_role("button", name="1 2", exact=True).click()

    expect(run.locator(".feedback-item strong")).to_have_text("helpful")
    expect(run.locator(".feedback-source")).to_contain_text(session.user.display_name)
    expect(run.get_by_role("tab", name="Feedback")).to_have_text("Feedback 1")
    expect(page.get_by_role("treeitem").first.locator(".tree-scores")).to_contain_text("helpful")
    feedback = Feedback.unscoped.get()
    assert (feedback.key, feedback.score, feedback.user_id) == ("helpful", 1.0, session.user.pk)


def test_feedback_form_of_a_run_selected_in_the_tree_updates_in_place(session):
    root, child, _ = ingest_nested_trace(session.workspace)
    add_config(session.workspace, "helpful", type="continuous", min=0, max=1)
    page = open_feedback(session, root["id"])
    page.get_by_role("treeitem").nth(1).click()
    run = page.locator("#run")
    expect(run.get_by_role("heading", level=2)).to_have_text("find order")
    page.evaluate("window.isSamePage = true")
    run.get_by_role("tab", name="Feedback").click()

    run.get_by_role("button", name="0 1", exact=True).click()

    expect(run.locator(".feedback-item")).to_have_count(1)
    assert page.evaluate("window.isSamePage") is True
    assert str(Feedback.unscoped.get().run_id) == child["id"]


def test_rejected_feedback_shows_the_reason(session):
    root, *_ = ingest_nested_trace(session.workspace)
    page = open_feedback(session, root["id"])
    run = page.locator("#run")

    run.get_by_label("Key").fill("tone")
    run.get_by_role("button", name="Save feedback").click()

    expect(run.get_by_role("alert")).to_have_text("Enter a score, a comment or a correction.")
    expect(run.get_by_label("Key")).to_have_value("tone")
    ignore_status_422(session)
    assert not Feedback.unscoped.exists()


def test_score_outside_an_enforced_range_shows_the_reason(session):
    root, *_ = ingest_nested_trace(session.workspace)
    row = add_config(
        session.workspace, "helpful", type="continuous", min=0, max=1, is_enforced=True
    )
    page = open_feedback(session, root["id"])
    row.config |= {"max": 0.5}
    row.save()
    run = page.locator("#run")

    run.get_by_role("button", name="1 2", exact=True).click()

    expect(run.get_by_role("alert")).to_contain_text("helpful")
    ignore_status_422(session)
    assert not Feedback.unscoped.exists()


def test_key_without_a_range_offers_the_scale_of_its_scores(session):
    root, child, _ = ingest_nested_trace(session.workspace)
    for key, scores in {"stars": (4, 2), "rating": (37.5, 90), "share": (0.25, 1)}.items():
        add_config(session.workspace, key, type="continuous")
        for score in scores:
            add_score(session.workspace, child, key, score)
    add_config(session.workspace, "fresh", type="continuous")
    page = open_feedback(session, root["id"])
    keys = page.locator(".annotate-key")

    offered = {
        keys.nth(n).locator("legend").inner_text(): [
            text.split()[0] for text in keys.nth(n).locator(".segments button").all_inner_texts()
        ]
        for n in range(keys.count())
    }
    page.get_by_label("Score of rating").fill("88.5")
    page.keyboard.press("Enter")

    expect(page.locator(".feedback-item")).to_have_count(1)
    assert offered == {
        "stars": ["1", "2", "3", "4", "5"],
        "share": ["0", "0.25", "0.5", "0.75", "1"],
        "rating": [],
        "fresh": [],
    }
    assert Feedback.unscoped.get(run_id=root["id"]).score == 88.5


def test_deletion_of_feedback_requires_confirmation(session):
    root, *_ = ingest_nested_trace(session.workspace)
    add_score(session.workspace, root, "helpful", 1)
    page = open_feedback(session, root["id"])
    run = page.locator("#run")

    run.get_by_role("button", name="Delete helpful").click()
    dialog = page.get_by_role("dialog", name="Delete the feedback helpful?")
    expect(dialog).to_be_visible()
    count_before = Feedback.unscoped.count()
    dialog.get_by_role("button", name="Delete").click()

    expect(run.locator(".feedback-item")).to_have_count(0)
    expect(run.get_by_role("tab", name="Feedback")).to_have_text("Feedback ")
    assert (count_before, Feedback.unscoped.count()) == (1, 0)


def test_selected_tab_stays_within_the_trace_except_for_failed_runs(session):
    root, *_ = ingest_nested_trace(session.workspace)
    other, *_ = ingest_nested_trace(session.workspace)
    page = session.goto(tree_path(session, root["id"]))
    run, rows = page.locator("#run"), page.get_by_role("treeitem")
    opened = {}
    run.get_by_role("tab", name="Metadata").click()
    for n, name in ((1, "find order"), (2, "ask model")):
        rows.nth(n).click()
        expect(run.get_by_role("heading", level=2)).to_have_text(name)
        expect(run.get_by_role("tablist").first).to_be_visible()
        opened[name] = run.get_by_role("tab", selected=True).first.inner_text().split()[0]
    session.goto(tree_path(session, other["id"]))
    opened["other trace"] = run.get_by_role("tab", selected=True).first.inner_text()

    assert opened == {"find order": "Run", "ask model": "Metadata", "other trace": "Run"}


def ingest_steps(workspace, *steps, root_seconds=None):
    """Ingest a trace of steps given as start and duration in seconds; return the root."""
    start = datetime.now(UTC) - timedelta(minutes=5)

    def timed(parent, begin, duration, **fields):
        begin_at = start + timedelta(seconds=begin)
        end_at = begin_at + timedelta(seconds=duration)
        return wire_run(parent, start=begin_at, end_time=end_at.isoformat(), **fields)

    root = timed(None, 0, root_seconds or steps[-1][0] + steps[-1][1], name="desk")
    ingest(workspace, root, *(timed(root, *step, name=f"step {n}") for n, step in enumerate(steps)))
    return root


def bar_share(page, n):
    """Return the width of the bar of the row as a share of its track."""
    bar = page.locator(".tree-row .tree-bar").nth(n).bounding_box()
    track = page.locator(".tree-row .tree-track").nth(n).bounding_box()
    return bar["width"] / track["width"]


def test_waterfall_keeps_the_true_scale_of_short_steps(session):
    root = ingest_steps(session.workspace, (0, 0.001), (3.699, 0.001))
    page = session.goto(f"{run_path(session, root['id'])}?view=waterfall")
    expect(page.locator(".tree-bar").first).to_be_visible()

    assert bar_share(page, 0) > 0.99
    assert bar_share(page, 1) < 0.02
    assert bar_share(page, 2) < 0.02


def test_waterfall_folds_only_time_without_an_open_run_and_shows_the_cut(session):
    root = ingest_steps(session.workspace, (0.5, 0.5), (60, 1), root_seconds=20)
    page = session.goto(f"{run_path(session, root['id'])}?view=waterfall")
    page.get_by_label("Options").click()
    fold = page.get_by_label("Fold time in which no run is open")
    expect(fold).not_to_be_checked()
    before = bar_share(page, 0)
    fold.check()

    # The root is open from 0 to 20 s, the last step from 60 to 61 s.
    expect(page.locator(".tree-ruler .tree-gap")).to_have_text("40.0 s")
    expect(page.locator(".tree-row .tree-gap")).to_have_count(3)
    assert abs(before - 20 / 61) < 0.01
    assert abs(bar_share(page, 0) - 20 / 21) < 0.05


def test_ruler_labels_differ_after_zooming(session):
    root = ingest_steps(session.workspace, (0, 40))
    page = session.goto(f"{run_path(session, root['id'])}?view=waterfall")
    ruler = page.locator(".tree-ruler-scale")
    box = ruler.bounding_box()
    for _ in range(4):
        page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 5)
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] * 0.75, box["y"] + 5)
        page.mouse.up()

    labels = page.locator(".tree-tick").all_inner_texts()

    assert len(labels) > 2
    assert len(set(labels)) == len(labels)
    assert {label.rpartition(" ")[2] for label in labels} == {"s"}


def test_guide_lines_of_deep_runs_end_before_the_name(session):
    runs = [wire_run(name="level 0")]
    for depth in range(1, 14):
        runs.append(wire_run(runs[-1], name=f"level {depth}"))
    ingest(session.workspace, *runs)
    page = session.goto(f"{run_path(session, runs[0]['id'])}?view=waterfall")
    row = page.get_by_role("treeitem").nth(12)
    expect(row).to_contain_text("level 12")

    guide_end = row.evaluate(
        "row => row.getBoundingClientRect().left"
        " + parseFloat(getComputedStyle(row, '::before').insetInlineStart)"
        " + parseFloat(getComputedStyle(row, '::before').inlineSize)"
    )

    assert guide_end <= row.locator(".tree-toggle").bounding_box()["x"] + 10


def test_long_values_are_folded_until_they_are_opened(session):
    text = "\n".join(f"Line {n} of a long document." for n in range(12_000))
    run = wire_run(
        name="summarize",
        run_type="llm",
        inputs={"messages": [{"role": "user", "content": text}]},
        outputs={"text": "A document."},
        extra={"metadata": {"prompt": text}},
    )
    ingest(session.workspace, run)
    page = session.goto(tree_path(session, run["id"]))
    body = page.locator("#run")
    button = body.get_by_role("button", name="Show all")
    expect(button).to_have_count(1)
    folded_height = body.evaluate("element => element.scrollHeight")
    button.click()
    open_height = body.evaluate("element => element.scrollHeight")
    body.get_by_role("button", name="Show less").click()
    body.get_by_role("tab", name="Metadata").click()
    expect(body.get_by_role("button", name="Show all")).to_have_count(1)

    assert folded_height < 1_500
    assert open_height > 50_000
    assert body.evaluate("element => element.scrollHeight") < 1_500


def test_swap_of_feedback_violates_no_content_security_policy(session):
    root, *_ = ingest_nested_trace(session.workspace)
    page = open_feedback(session, root["id"])
    page.keyboard.press("c")
    comment = page.get_by_label("Comment")
    # Dragging the corner of a text area gives it a style attribute.
    comment.evaluate("area => area.style.height = '9rem'")
    comment.fill("Kind.")
    page.get_by_role("combobox", name="Key").fill("tone")
    page.get_by_role("button", name="Save feedback").click()

    expect(page.locator(".feedback-item")).to_have_count(1)
    assert session.console_errors == []


def test_tables_of_model_output_are_aligned_without_inline_styles(session):
    table = "| a | b |\n|:-:|--:|\n| 1 | 2 |"
    run = wire_run(run_type="llm", outputs={"text": table})
    ingest(session.workspace, run)

    page = session.goto(tree_path(session, run["id"]))

    expect(page.locator("td").first).to_have_attribute("align", "center")
    alignment = page.locator("td").nth(1).evaluate("cell => getComputedStyle(cell).textAlign")
    assert alignment.endswith("right")
    assert session.console_errors == []


def test_each_state_of_the_trace_page_passes_axe(session):
    tool = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
    run = wire_run(
        run_type="llm",
        inputs={"messages": [{"role": "user", "content": "Why?"}], "tools": [tool], "seed": 1},
        outputs={"a": {"b": [1, 2]}, "c": {"d": 1}},
        extra={"metadata": {"tier": "gold", "customer": "c"}},
        events=[{"name": "start", "time": "2026-01-01T00:00:00Z"}],
    )
    ingest(session.workspace, run)
    add_config(session.workspace, "helpful", type="continuous", min=0, max=1)
    add_config(session.workspace, "stars", type="continuous", min=1, max=5)
    add_config(session.workspace, "rating", type="continuous")
    add_score(session.workspace, run, "stars", 3)
    page = session.goto(tree_path(session, run["id"]))
    page.emulate_media(reduced_motion="reduce")
    body = page.locator("#run")
    problems = {}
    for tab in ("Feedback", "Metadata", "Events", "Run"):
        body.get_by_role("tab", name=tab).click()
        problems[tab] = axe_violations(page)
    for summary in body.locator("#run-part-run summary").all():
        summary.click()
    problems["open"] = axe_violations(page)
    body.locator("[data-tab=json]").first.click()
    problems["json"] = axe_violations(page)
    page.get_by_label("Options").click()
    problems["options"] = axe_violations(page)
    page.get_by_role("button", name="Waterfall").click()
    problems["waterfall"] = axe_violations(page)

    assert {state: rows for state, rows in problems.items() if rows} == {}


def test_sections_of_compared_runs_are_aligned(session):
    short = wire_run(run_type="llm", inputs={"text": "Short."}, outputs={"text": "Yes."})
    text = "\n".join(f"Line {n}." for n in range(12))
    tall = wire_run(run_type="llm", inputs={"text": text}, outputs={"text": "No."})
    ingest(session.workspace, short, tall)
    project = run_path(session, short["id"]).partition("/r/")[0]
    page = session.goto(f"{project}/compare?a={short['id']}&b={tall['id']}")

    tops = [page.get_by_label(f"Output of {letter}").bounding_box()["y"] for letter in ("A", "B")]

    assert tops[0] == tops[1]
    expect(page.get_by_label("Text diff of the output").locator("mark")).to_have_text(["Yes", "No"])
