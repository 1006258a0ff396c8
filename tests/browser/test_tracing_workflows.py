"""Workflows of the run list and the trace page, with mouse and keyboard."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from apps.feedback.models import Feedback
from tests.browser.conftest import create_context, open_page
from tests.browser.test_workflows import ingest_nested_trace
from tests.factories.tracing import read_run, stored_run


def project_path(session, run_id):
    return f"{session.path}/projects/p/{read_run(session.workspace, run_id).row.project_id}"


def test_facet_and_query_share_the_same_state(session):
    run_id = stored_run(session.workspace, name="desk")
    stored_run(session.workspace, name="triage", error="Boom")
    page = session.goto(project_path(session, run_id))
    expect(page.locator("tr[data-row]")).to_have_count(2)

    page.get_by_role("link", name="error 1").click()
    expect(page.locator("tr[data-row]")).to_have_count(1)
    expect(page.get_by_role("combobox", name="Query")).to_have_value("status:error")
    page.get_by_role("link", name="Clear", exact=True).click()
    session.wait_for_elements()
    field = page.get_by_role("combobox", name="Query")
    field.press_sequentially("nam")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(field).to_have_value("name:")
    field.press_sequentially("de")
    expect(page.get_by_role("option", name="desk 1")).to_be_visible()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Tab")
    expect(field).to_have_value("name:desk ")
    page.keyboard.press("Escape")
    page.keyboard.press("Enter")

    expect(page.locator("tr[data-row]")).to_have_count(1)
    expect(page.locator(".row-link")).to_have_text("desk")


def test_fault_of_a_query_is_named_while_typing_and_keeps_the_list(session):
    run_id = stored_run(session.workspace, name="desk")
    page = session.goto(f"{project_path(session, run_id)}?query=name:desk")
    session.wait_for_elements()
    field = page.get_by_role("combobox", name="Query")
    address = page.url

    page.keyboard.press("/")
    page.keyboard.type(" latancy:>2s x")
    fault = page.locator(".query-line .query-fault")
    expect(fault).to_contain_text("Unknown field latancy. Did you mean latency?")
    expect(page.locator(".query-mirror .is-fault")).to_have_text("latancy:>2s")
    page.keyboard.press("Escape")
    page.keyboard.press("Enter")
    assert page.url == address
    expect(page.locator(".row-link")).to_have_text("desk")
    selection = field.evaluate(
        "input => input.value.slice(input.selectionStart, input.selectionEnd)"
    )
    assert selection == "latancy"
    page.get_by_role("button", name="Use latency").click()
    expect(fault).to_be_empty()
    expect(field).to_have_value("name:desk latency:>2s x")


def test_backspace_selects_a_clause_and_recent_queries_are_offered(session):
    run_id = stored_run(session.workspace, name="desk")
    path = project_path(session, run_id)
    page = session.goto(path)
    session.wait_for_elements()
    field = page.get_by_role("combobox", name="Query")
    field.fill("name:desk tag:vip ")
    page.keyboard.press("Backspace")
    expect(field).to_have_value("name:desk tag:vip ")
    page.keyboard.press("Backspace")
    expect(field).to_have_value("name:desk ")
    page.keyboard.press("Escape")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("query=name"))

    page.goto(path if path.startswith("http") else page.url.partition("?")[0])
    session.wait_for_elements()
    page.get_by_role("combobox", name="Query").click()
    expect(page.get_by_role("option").first).to_have_text("name:desk")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("query=name"))


def test_alt_click_on_a_facet_excludes_its_value(session):
    run_id = stored_run(session.workspace, name="desk")
    stored_run(session.workspace, name="triage", error="Boom")
    page = session.goto(project_path(session, run_id))

    page.get_by_role("link", name="error 1").click(modifiers=["Alt"])

    expect(page.get_by_role("combobox", name="Query")).to_have_value("-status:error")
    expect(page.locator(".row-link")).to_have_text("desk")


def test_run_preview_shows_a_run_and_follows_the_keyboard(session):
    run_id = stored_run(session.workspace, name="first", outputs={"text": "one"})
    stored_run(session.workspace, name="second", outputs={"text": "two"})
    page = session.goto(project_path(session, run_id))

    page.get_by_role("link", name="second", exact=True).click()
    peek = page.get_by_label("Run preview")
    expect(peek).to_contain_text("two")
    page.keyboard.press("j")
    expect(peek).to_contain_text("one")
    expect(page).to_have_url(re.compile(f"preview={run_id}"))
    page.keyboard.press("x")
    expect(page.get_by_text("1 selected")).to_be_visible()
    page.keyboard.press("Escape")
    expect(peek).to_be_hidden()
    page.keyboard.press("Enter")

    page.wait_for_url(f"**/r/{run_id}**")


def test_feedback_is_created_with_the_keyboard(session):
    root, *_ = ingest_nested_trace(session.workspace)
    page = session.goto(f"{project_path(session, root['id'])}/r/{root['id']}?view=tree")
    run = page.locator("#run")
    run.get_by_role("tab", name="Feedback").click()

    page.keyboard.press("c")
    page.keyboard.type("Kind and short.")
    run.get_by_label("Key").fill("tone")
    run.get_by_role("button", name="Save feedback").click()

    expect(run.locator(".feedback-item")).to_contain_text("Kind and short.")
    assert Feedback.unscoped.get().key == "tone"


def test_share_dialog_creates_and_revokes_a_public_link(session, browser, site_url):
    root, *_ = ingest_nested_trace(session.workspace)
    page = session.goto(f"{project_path(session, root['id'])}/r/{root['id']}?view=tree")

    page.get_by_role("link", name="Share").click()
    page.get_by_role("button", name="Create public link").click()
    link = page.get_by_role("dialog").locator("pre").inner_text()
    guest = open_page(create_context(browser, site_url))
    opened = guest.goto(f"{link[link.index('/public/') :]}?view=tree")
    expect(guest.get_by_role("treeitem")).to_have_count(3)
    guest.get_by_role("treeitem").nth(2).click()
    expect(guest.locator("#run")).to_contain_text("held")
    page.get_by_role("button", name="Revoke link").click()
    expect(page.get_by_role("button", name="Create public link")).to_be_visible()

    assert opened.status == 200
    assert guest.reload().status == 404
    guest.context.close()


def test_trace_page_links_to_its_neighbours_in_the_list(session):
    run_id = stored_run(session.workspace, name="first")
    stored_run(session.workspace, name="second")
    page = session.goto(project_path(session, run_id))

    page.keyboard.press("f")
    expect(page.get_by_label("Filters", exact=True)).to_be_hidden()
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url("**/r/*")
    session.wait_for_elements()
    expect(page.get_by_text("1 of 2")).to_be_visible()
    page.keyboard.press("Shift+J")

    page.wait_for_url(f"**/r/{run_id}")
    page.goto(project_path(session, run_id))
    expect(page.get_by_label("Filters", exact=True)).to_be_hidden()
