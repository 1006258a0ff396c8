"""Reading traces in Chromium: facets, scopes, keys, errors, sample data, reserved room."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import expect

from apps.console import sample_data
from tests.browser.conftest import SETTLED
from tests.browser.test_accessibility import ALL_VARIANTS, axe_violations, find_problems
from tests.browser.test_experiment_pages import compare_path, experiments
from tests.browser.test_tracing_workflows import project_path
from tests.factories.tracing import ingest, stored_run, wire_run

__all__ = ["experiments"]  # a fixture
ERROR = """ValueError("no order")Traceback (most recent call last):
  File "/venv/lib/python3.11/site-packages/langgraph/runner.py", line 90, in tick
    run_with_retry()
  File "/deps/desk/src/desk/orders.py", line 12, in find_order
    raise ValueError("no order")
ValueError: no order"""


def query_of(page):
    return parse_qs(urlsplit(page.url).query).get("query", [""])[0]


def test_handle_of_a_number_facet_writes_a_range_into_the_query(session):
    for seconds in (0.1, 0.3, 4, 30):
        start = datetime.now(UTC) - timedelta(minutes=5)
        end = (start + timedelta(seconds=seconds)).isoformat()
        run_id = stored_run(session.workspace, name=f"{seconds}", start=start, end_time=end)
    page = session.goto(f"{project_path(session, run_id)}?query=name:*")
    handle = page.get_by_role("slider", name="Latency from")
    expect(handle).to_have_attribute("aria-valuetext", "100 ms")

    handle.focus()
    page.keyboard.press("End")

    expect(page.locator("tr[data-row]")).to_have_count(1)
    assert re.fullmatch(r"name:\* latency:2\ds\.\.", query_of(page))
    page.get_by_role("link", name="Any latency").click()
    expect(page.locator("tr[data-row]")).to_have_count(4)
    assert query_of(page) == "name:*"


def test_scope_button_asks_for_another_run_of_the_trace(session):
    root = wire_run(name="desk")
    ingest(session.workspace, root, wire_run(parent=root, name="search", run_type="tool"))
    stored_run(session.workspace, name="other")
    page = session.goto(f"{project_path(session, root['id'])}?query=type:tool")
    expect(page.get_by_text("No matching runs")).to_be_visible()

    page.locator("summary", has_text="Root run").click()
    page.get_by_role("link", name="Any run of its trace").click()

    expect(page.locator(".row-link")).to_have_text("desk")
    expect(page.get_by_role("combobox", name="Query")).to_have_value("type:tool")
    session.wait_for_elements()
    page.get_by_role("combobox", name="Query").fill("type:llm")
    page.keyboard.press("Escape")
    page.keyboard.press("Enter")
    expect(page.get_by_text("No matching runs")).to_be_visible()
    assert parse_qs(urlsplit(page.url).query)["any"] == ["type:llm"]


def test_key_after_the_prefix_is_no_other_shortcut(session):
    run_id = stored_run(session.workspace, name="desk")
    page = session.goto(project_path(session, run_id))
    density = "document.documentElement.dataset.density ?? ''"
    before = page.evaluate(density)

    page.keyboard.press("g")
    page.keyboard.press("d")

    expect(page.get_by_role("heading", level=1)).to_have_text("Deployments")
    assert page.evaluate(density) == before
    session.goto(project_path(session, run_id))
    page.keyboard.press("d")
    assert page.evaluate(density) != before


def test_error_shows_own_frames_and_folds_those_of_libraries(session):
    root = wire_run(name="desk", error=ERROR, outputs=None)
    child = wire_run(parent=root, name="find", error=ERROR, outputs=None)
    ingest(session.workspace, root, child)
    page = session.goto(f"{project_path(session, root['id'])}/r/{root['id']}")

    expect(page).to_have_url(re.compile(child["id"]))
    report = page.locator("#run .error-report")
    expect(report.locator("strong")).to_have_text('ValueError("no order")')
    expect(report.get_by_text("src/desk/orders.py:12")).to_be_visible()
    expect(report.get_by_text("langgraph/runner.py:90")).to_be_hidden()
    report.get_by_text("1 library frame").click()
    expect(report.get_by_text("langgraph/runner.py:90")).to_be_visible()


def test_interrupt_is_a_card_in_the_colour_of_waiting(session):
    run_id = stored_run(session.workspace, error="GraphInterrupt((Interrupt(value='Refund?'),))")
    page = session.goto(f"{project_path(session, run_id)}/r/{run_id}")

    card = page.locator("#run .error-report")

    expect(card).to_contain_text("Waiting for input")
    waiting = "getComputedStyle(document.querySelector('.error-report')).backgroundColor"
    probe = """() => { const probe = document.createElement("i");
      probe.style.setProperty("background-color", "var(--status-waiting-soft)");
      document.body.append(probe);
      return getComputedStyle(probe).backgroundColor; }"""
    assert page.evaluate(waiting) == page.evaluate(probe)


def test_sample_data_is_loaded_read_and_removed(session):
    session.user.workspace_memberships.update(role="admin")
    page = session.goto("/")
    expect(page.get_by_role("heading", level=1)).to_have_text("Start")

    page.get_by_role("button", name="Load sample data").click()

    expect(page.locator("tr[data-row]")).to_have_count(10)
    page.locator(".row-link").first.click()
    expect(page.get_by_label("Run preview")).to_contain_text("concierge")
    page.keyboard.press("Escape")
    expect(page.get_by_label("Run preview")).to_be_hidden()
    # Charts and filters that are still on their way would not find the removed project.
    page.locator(SETTLED).wait_for(state="attached")
    page.get_by_role("button", name="Remove the sample data").click()
    expect(page.get_by_text("The sample data was removed.")).to_be_visible()
    expect(page.get_by_role("heading", level=1)).to_have_text("Start")


def test_buttons_for_selected_runs_stay_within_a_narrow_page(session):
    session.user.workspace_memberships.update(role="admin")
    run_id = stored_run(session.workspace, name="desk")
    page = session.page
    page.set_viewport_size({"width": 390, "height": 844})
    session.goto(project_path(session, run_id))

    page.locator("input[name=run]").check()

    for name in ("Copy IDs", "Add to dataset", "Delete traces", "Clear"):
        box = page.get_by_role("button", name=name).bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 390, name


def test_next_steps_are_closed_for_good(session):
    run_id = stored_run(session.workspace, name="desk")
    page = session.goto(project_path(session, run_id))
    expect(page.get_by_role("heading", name="Next steps")).to_be_visible()

    page.get_by_role("button", name="Close the next steps").click()

    expect(page.get_by_role("heading", name="Next steps")).to_have_count(0)
    expect(page.locator("tr[data-row]")).to_have_count(1)


def test_statistics_of_a_comparison_do_not_move_its_rows(session, experiments):
    page = session.page
    held = []
    page.route("**/compare/summary**", lambda route: held.append(route))  # noqa: PLW0108
    with page.expect_request("**/compare/summary**"):
        page.goto(compare_path(session, experiments[:2]))
    before = page.locator(".comparison-table").bounding_box()
    for route in held:
        route.continue_()
    expect(page.locator(".compare-summary")).to_contain_text("independent of filters")
    after = page.locator(".comparison-table").bounding_box()

    assert after["y"] == pytest.approx(before["y"], abs=1)


@pytest.mark.parametrize("variants", [ALL_VARIANTS[:2], ALL_VARIANTS[2:]])
def test_changed_pages_pass_axe_and_fit_the_viewport(session, variants):
    root = wire_run(name="desk", error=ERROR, outputs=None)
    child = wire_run(parent=root, name="find", error=ERROR, outputs=None)
    ingest(session.workspace, root, child)
    sample = sample_data.load_sample_data(session.workspace.pk)
    project = project_path(session, root["id"])
    addresses = [
        f"{session.path}/start",
        f"{session.path}/projects/p/{sample.pk}",
        f"{project}?query=latency:0s..1m&scope=any",
        f"{project}/r/{child['id']}?view=tree",
        f"{project}/r/{root['id']}?view=tree",
    ]

    assert find_problems(session.page, [a for a in addresses for _ in variants], variants) == {}
    session.page.locator(SETTLED).wait_for(state="attached")
    assert axe_violations(session.page) == []
