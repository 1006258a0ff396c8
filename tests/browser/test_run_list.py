"""The run list in a real browser: filters, saved views, live counts and the widths of columns."""

from __future__ import annotations

import json
import re
from urllib.parse import quote

import pytest
from playwright.sync_api import expect

from tests.browser.test_accessibility import CLIPPED_HEADS
from tests.browser.test_tracing_workflows import project_path
from tests.factories.deployments import DeploymentFactory
from tests.factories.tracing import stored_run

THREAD = {"extra": {"metadata": {"thread_id": "t-1", "user": "u-7"}}}


def test_checkbox_in_the_head_selects_all_runs_of_the_page(session):
    run_id = stored_run(session.workspace, name="desk")
    stored_run(session.workspace, name="lamp")
    page = session.goto(project_path(session, run_id))

    page.get_by_label("Select all on the page").check()
    expect(page.get_by_text("2 selected")).to_be_visible()
    expect(page.locator('input[name="run"]:checked')).to_have_count(2)
    page.get_by_label("Select all on the page").uncheck()

    expect(page.get_by_text("2 selected")).to_be_hidden()
    expect(page.locator('input[name="run"]:checked')).to_have_count(0)


def test_late_suggestions_of_an_earlier_field_are_dropped(session):
    run_id = stored_run(session.workspace, name="desk", **THREAD)
    page = session.goto(project_path(session, run_id))
    session.wait_for_elements()
    held = []

    def answer(route):
        """Hold back the values of one field until those of another have arrived."""
        if "field=name" in route.request.url:
            held.append(route)
        else:
            route.continue_()

    page.route("**/values?*", answer)
    field = page.get_by_role("combobox", name="Query")
    field.press_sequentially("name:")
    field.fill("user:")
    options = page.get_by_role("option")
    expect(options.first).to_contain_text("u-7")
    assert held
    for route in held:
        route.fulfill(json={"values": [{"text": "desk", "note": "1"}]})
    # The page has handled the responses when a later one has arrived.
    page.evaluate("fetch('/info').then((response) => response.text())")
    expect(options.first).to_contain_text("u-7")
    expect(page.get_by_role("option", name="desk")).to_have_count(0)


def test_a_saved_view_opens_no_menu(session):
    run_id = stored_run(session.workspace, name="desk")
    page = session.goto(f"{project_path(session, run_id)}?filter=eq(name,%22desk%22)")
    page.locator(".views-menu summary").click()
    page.get_by_label("Name of the view").fill("Desks")
    page.get_by_role("button", name="Save this view").click()

    expect(page.locator(".views-menu summary")).to_have_text("Desks")
    expect(page.locator("details.menu[open]")).to_have_count(0)
    page.locator(".views-menu summary").click()
    page.get_by_role("link", name="Desks").click()
    expect(page.locator("details.menu[open]")).to_have_count(0)


def test_the_menu_stays_open_while_columns_are_moved(session):
    run_id = stored_run(session.workspace, name="desk")
    page = session.goto(project_path(session, run_id))
    page.locator("summary", has_text="Columns").click()

    page.get_by_role("button", name="Move Output up").click()

    expect(page.locator(".columns-menu")).to_be_visible()
    expect(page.locator(".runs-table th").nth(3)).to_have_text("Output")
    page.locator(".columns-menu").get_by_role("button", name="Apply").click()
    expect(page.locator(".columns-menu")).to_be_hidden()


def test_counts_and_chart_follow_live_rows(session):
    run_id = stored_run(session.workspace, name="desk")
    page = session.goto(project_path(session, run_id))
    status = page.locator("#facets").get_by_role("link", name="Success")
    expect(status).to_have_text(re.compile("Success\\s*1"))
    page.get_by_role("button", name="Go live").click()

    stored_run(session.workspace, name="lamp")

    expect(page.locator("tr[data-row]")).to_have_count(2)
    expect(status).to_have_text(re.compile("Success\\s*2"))
    expect(page.locator("#strip .chart-total").first).to_have_text("2")


@pytest.mark.parametrize("width", [1024, 1440, 1920])
def test_no_column_head_is_cut(session, width):
    usage = {"input_tokens": 1_234_567, "output_tokens": 7_654_321, "total_cost": 12.5}
    run_id = stored_run(
        session.workspace,
        run_type="llm",
        tags=["vip", "beta"],
        outputs={"text": "Yes.", "usage_metadata": usage},
        **THREAD,
    )
    base = project_path(session, run_id)
    session.page.set_viewport_size({"width": width, "height": 900})
    keys = ["name", "first_token", "tokens", "cost", "thread", "feedback", "model"]
    columns = quote(json.dumps(keys))
    addresses = {
        "projects": f"{session.path}/projects",
        "runs": base,
        "sorted": f"{base}?sort=-tokens",
        "model runs": f"{base}?show=llm&columns={columns}",
        "threads": f"{base}/threads",
    }

    clipped = {name: session.goto(path).evaluate(CLIPPED_HEADS) for name, path in addresses.items()}

    assert {name: heads for name, heads in clipped.items() if heads} == {}


def test_input_and_output_get_the_space_of_empty_columns(session):
    run_id = stored_run(session.workspace, inputs={"q": "Why? " * 40}, outputs={"a": "No. " * 40})
    base = project_path(session, run_id)

    def text_width():
        heads = (
            page.locator("th", has_text=re.compile(f"^\\s*{name}\\s*$"))
            for name in ("Input", "Output")
        )
        return sum(head.bounding_box()["width"] for head in heads)

    page = session.goto(base)
    width_without_values = text_width()
    expect(page.locator(".runs-table th", has_text="Tokens")).to_be_hidden()
    usage = {"usage_metadata": {"input_tokens": 10, "output_tokens": 5, "total_cost": 0.5}}
    stored_run(session.workspace, run_type="llm", outputs=usage)
    page = session.goto(base)
    expect(page.locator(".runs-table th", has_text="Tokens")).to_be_visible()
    expect(page.locator(".runs-table th", has_text="Feedback")).to_be_hidden()

    assert width_without_values > 530
    assert width_without_values - text_width() > 100


def test_saving_the_environment_says_what_changes(session):
    deployment = DeploymentFactory(workspace=session.workspace, name="desk")
    address = f"{session.path}/deployments/{deployment.pk}/environment"
    page = session.goto(address)
    page.get_by_label("Add variables").fill("A=1\nB=2\nC=3")
    page.get_by_role("button", name="Save and deploy").click()
    page.wait_for_url("**/revisions/**")
    page = session.goto(address)
    summary = page.locator("[data-summary]")
    expect(summary).to_have_text("No changes yet.")

    page.get_by_label("Add variables").fill("D=4")
    page.get_by_label("New value of A").fill("5")
    page.get_by_label("Remove B").check()

    expect(summary).to_have_text("Adds D. Changes A. Removes B. 1 unchanged.")
