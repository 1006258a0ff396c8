"""Workflows of the console in a real browser."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor

from django.db import connections
from playwright.sync_api import expect

from apps.deployments import dispatch
from apps.deployments.models import StatusChange
from tests.browser.conftest import create_context, open_page
from tests.factories.deployments import DeploymentFactory, LogLineFactory, RevisionFactory
from tests.factories.tracing import ingest, read_run, stored_run, wire_run


def test_sign_in_rejects_a_wrong_password_and_then_redirects_to_the_requested_page(
    site_url, browser, session
):
    anonymous = open_page(create_context(browser, site_url))
    anonymous.goto(f"{session.path}/deployments")

    anonymous.get_by_label("Email").fill(session.user.email)
    anonymous.get_by_label("Password").fill("wrong")
    anonymous.keyboard.press("Enter")
    expect(anonymous.get_by_role("alert")).to_have_text("Email and password do not match.")
    anonymous.get_by_label("Password").fill("correct horse battery")
    anonymous.keyboard.press("Enter")

    anonymous.wait_for_url(f"**{session.path}/deployments")
    expect(anonymous.get_by_role("heading", level=1)).to_have_text("Deployments")
    anonymous.context.close()


def revision_page(session, **fields):
    deployment = DeploymentFactory(workspace=session.workspace, name="support")
    revision = RevisionFactory(deployment=deployment, number=1, **fields)
    address = f"{session.path}/deployments/{deployment.pk}/revisions/{revision.pk}"
    return revision, address


def write_log_line(revision, message):
    """Write a log line and notify readers from a thread without an event loop."""
    LogLineFactory(revision=revision, message=message)
    with ThreadPoolExecutor(1) as builder:
        builder.submit(dispatch.notify_revision_changed, revision.pk).result()
        builder.submit(connections.close_all).result()


def test_build_log_appends_lines_and_ends_with_the_build(session):
    revision, address = revision_page(session, status="BUILDING")
    LogLineFactory(revision=revision, message="Cloning")
    session.goto(f"{session.path}/deployments")
    session.page.keyboard.press("j")
    session.page.keyboard.press("Enter")
    session.page.get_by_role("link", name="1", exact=True).click()
    log = session.page.locator("live-log")
    expect(log.locator(".log-state")).to_have_text("Live")

    write_log_line(revision, "Resolved 41 packages")
    expect(log.locator(".log-line")).to_have_text(
        [re.compile("Cloning"), re.compile("Resolved 41")]
    )
    StatusChange.unscoped.create(workspace=session.workspace, revision=revision, status="DEPLOYED")
    revision.status = "DEPLOYED"
    revision.save()
    revision.deployment.active_revision = revision
    revision.deployment.save()
    write_log_line(revision, "Live")

    expect(log.locator(".log-state")).to_have_text("Ended")
    expect(session.page.locator(".page-title .badge")).to_have_text("Deployed")
    expect(log.locator(".log-line")).to_have_count(3)
    assert session.page.url.endswith(address)


def test_log_resumes_after_a_disconnect_without_lost_or_repeated_lines(session):
    revision, address = revision_page(session, status="BUILDING")
    session.goto(address)
    log = session.page.locator("live-log")
    expect(log.locator(".log-state")).to_have_text("Live")
    write_log_line(revision, "one")
    expect(log.locator(".log-line")).to_have_count(1)

    session.context.set_offline(True)
    session.page.evaluate("document.querySelector('live-log').disconnectedCallback()")
    write_log_line(revision, "two")
    session.context.set_offline(False)
    session.page.evaluate(
        "(log => { const copy = log.cloneNode(true); log.replaceWith(copy) })"
        "(document.querySelector('live-log'))"
    )
    write_log_line(revision, "three")

    expect(log.locator(".log-line span")).to_have_text(["one", "two", "three"])


def test_log_search_counts_matches_and_moves_between_them(session):
    revision, address = revision_page(session, status="DEPLOYED")
    for message in ("apple", "pear", "Apple pie"):
        LogLineFactory(revision=revision, message=message)
    session.goto(address)

    session.page.keyboard.press("/")
    session.page.keyboard.type("apple")
    expect(session.page.locator("[data-match-count]")).to_have_text("1 of 2")
    session.page.keyboard.press("Enter")

    expect(session.page.locator("[data-match-count]")).to_have_text("2 of 2")
    expect(session.page.locator(".is-current-match span")).to_have_text("Apple pie")


def ingest_nested_trace(workspace):
    root = wire_run(
        name="desk",
        inputs={"messages": [{"role": "user", "content": "Where?"}]},
        extra={"metadata": {"thread_id": "t-1"}},
    )
    child = wire_run(root, name="find order", run_type="tool", error="Timeout: slow", outputs=None)
    leaf = wire_run(child, name="ask model", run_type="llm", outputs={"text": "It is **held**."})
    ingest(workspace, root, child, leaf)
    return root, child, leaf


def test_keyboard_moves_through_the_runs_of_a_trace(session):
    root, child, _ = ingest_nested_trace(session.workspace)
    project_id = read_run(session.workspace, root["id"]).row.project_id
    page = session.goto(f"{session.path}/projects/p/{project_id}")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url("**/r/*")
    session.wait_for_elements()
    page.keyboard.press("w")
    page.wait_for_url("**/r/*view=tree")
    session.wait_for_elements()
    run = page.locator("#run")
    expect(run.get_by_role("heading", level=2)).to_have_text("desk")
    expect(page.get_by_role("treeitem")).to_have_count(3)

    page.keyboard.press("j")
    expect(run.get_by_role("heading", level=2)).to_have_text("find order")
    expect(run).to_contain_text("Timeout: slow")
    expect(page).to_have_url(re.compile(child["id"]))
    page.keyboard.press("j")
    expect(run.locator("strong")).to_have_text("held")
    page.keyboard.press("k")
    expect(run.get_by_role("heading", level=2)).to_have_text("find order")

    page.get_by_role("tree").focus()
    page.keyboard.press("ArrowLeft")
    expect(page.get_by_role("treeitem")).to_have_count(2)
    page.keyboard.press("w")
    expect(page.locator(".tree-tick").first).to_be_visible()
    page.keyboard.press("d")
    dialog = page.get_by_role("dialog", name="Add to dataset")
    expect(dialog.locator('input[name="run"]')).to_have_value(child["id"])


def test_tree_search_dims_other_runs_and_opens_the_match(session):
    root, *_ = ingest_nested_trace(session.workspace)
    project_id = read_run(session.workspace, root["id"]).row.project_id
    page = session.goto(f"{session.path}/projects/p/{project_id}/r/{root['id']}?view=tree")
    expect(page.get_by_role("treeitem")).to_have_count(3)

    page.keyboard.press("/")
    page.keyboard.type("model")
    expect(page.locator(".tree-row.is-dimmed")).to_have_count(2)
    page.keyboard.press("Enter")

    expect(page.locator("#run h2").first).to_have_text("ask model")


def test_large_trace_renders_only_the_visible_rows(session):
    root = wire_run(name="crawl")
    ingest(session.workspace, root, *(wire_run(root, name=f"page {n}") for n in range(600)))
    project_id = read_run(session.workspace, root["id"]).row.project_id
    page = session.goto(f"{session.path}/projects/p/{project_id}/r/{root['id']}")
    page.get_by_role("tree").focus()

    page.keyboard.press("End")

    expect(page.locator("#run h2").first).to_have_text(re.compile(r"page \d+"))
    assert page.get_by_role("treeitem").count() < 80


def test_new_traces_are_announced_in_the_list(session):
    run_id = stored_run(session.workspace)
    project_id = read_run(session.workspace, run_id).row.project_id
    session.goto(f"{session.path}/projects/p/{project_id}")
    expect(session.page.locator("tr[data-row]")).to_have_count(1)

    stored_run(session.workspace)
    session.page.get_by_role("link", name="1 new").click()

    expect(session.page.locator("tr[data-row]")).to_have_count(2)


def test_command_palette_opens_a_deployment(session):
    DeploymentFactory(workspace=session.workspace, name="support-desk")

    session.goto(f"{session.path}/projects").keyboard.press("Control+k")
    session.page.keyboard.type("desk")
    expect(session.page.get_by_role("option")).to_have_count(1)
    session.page.keyboard.press("Enter")

    expect(session.page.get_by_role("heading", level=1)).to_have_text("support-desk")


def test_copy_button_copies_the_url_and_theme_choice_survives_a_reload(session):
    DeploymentFactory(workspace=session.workspace, name="support")
    page = session.goto(f"{session.path}/deployments")

    page.get_by_role("button", name="Copy address").click()
    page.get_by_role("button", name="Theme: system").click()
    page.get_by_role("button", name="Theme: light").click()
    page.reload()

    assert page.evaluate("navigator.clipboard.readText()").endswith("/agents/support")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")


def test_deployment_deletion_requires_typing_its_name(session):
    deployment = DeploymentFactory(workspace=session.workspace, name="support")
    page = session.goto(f"{session.path}/deployments/{deployment.pk}/settings")

    page.get_by_role("button", name="Delete support").click()
    confirm = page.get_by_role("button", name="Delete", exact=True)
    expect(confirm).to_be_disabled()
    page.get_by_role("textbox", name="Name").fill("support")
    confirm.click()

    expect(page.get_by_role("status").filter(has_text="support was deleted")).to_be_visible()
    expect(page.get_by_text("No deployments yet")).to_be_visible()


def test_navigation_drawer_traps_and_restores_focus(session):
    page = session.page
    page.set_viewport_size({"width": 390, "height": 844})
    session.goto(f"{session.path}/projects")

    page.get_by_role("link", name="Open navigation").click()
    expect(page.get_by_role("link", name="Close navigation")).to_be_focused()
    page.keyboard.press("Escape")

    expect(page.get_by_role("link", name="Open navigation")).to_be_focused()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
