"""What people do all day, in a real browser."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor

from django.db import connections
from playwright.sync_api import expect

from apps.deployments.models import StatusChange
from apps.deployments.services import notifications
from tests.factories.deployments import DeploymentFactory, LogLineFactory, RevisionFactory
from tests.factories.tracing import ingest, read, stored_run, wire_run


def test_sign_in_fails_helps_and_then_leads_on(site, chromium, visit):
    stranger = chromium.new_context(base_url=site).new_page()
    stranger.goto(f"{visit.base}/deployments")

    stranger.get_by_label("Email").fill(visit.user.email)
    stranger.get_by_label("Password").fill("wrong")
    stranger.keyboard.press("Enter")
    expect(stranger.get_by_role("alert")).to_have_text("Email and password do not match.")
    stranger.get_by_label("Password").fill("correct horse battery")
    stranger.keyboard.press("Enter")

    stranger.wait_for_url(f"**{visit.base}/deployments")
    expect(stranger.get_by_role("heading", level=1)).to_have_text("Deployments")
    stranger.context.close()


def revision_page(visit, **fields):
    deployment = DeploymentFactory(workspace=visit.workspace, name="support")
    revision = RevisionFactory(deployment=deployment, number=1, **fields)
    address = f"{visit.base}/deployments/{deployment.pk}/revisions/{revision.pk}"
    return revision, address


def say(revision, message):
    """Write a line and announce it, as a builder does: from a thread without an event loop."""
    LogLineFactory(revision=revision, message=message)
    with ThreadPoolExecutor(1) as builder:
        builder.submit(notifications.notify_revision_changed, revision.pk).result()
        builder.submit(connections.close_all).result()


def test_a_build_log_grows_on_the_page_and_ends_with_the_build(visit):
    revision, address = revision_page(visit, status="BUILDING")
    LogLineFactory(revision=revision, message="Cloning")
    visit.goto(f"{visit.base}/deployments")
    visit.page.keyboard.press("j")
    visit.page.keyboard.press("Enter")
    visit.page.get_by_role("link", name="1", exact=True).click()
    log = visit.page.locator("live-log")
    expect(log.locator(".log-state")).to_have_text("Live")

    say(revision, "Resolved 41 packages")
    expect(log.locator(".log-line")).to_have_text(
        [re.compile("Cloning"), re.compile("Resolved 41")]
    )
    StatusChange.unscoped.create(workspace=visit.workspace, revision=revision, status="DEPLOYED")
    revision.status = "DEPLOYED"
    revision.save()
    say(revision, "Live")

    expect(log.locator(".log-state")).to_have_text("Ended")
    expect(visit.page.locator(".page-title .badge")).to_have_text("Deployed")
    expect(log.locator(".log-line")).to_have_count(3)
    assert visit.page.url.endswith(address)


def test_a_log_goes_on_after_a_break_without_loss_or_repeat(visit):
    revision, address = revision_page(visit, status="BUILDING")
    visit.goto(address)
    log = visit.page.locator("live-log")
    expect(log.locator(".log-state")).to_have_text("Live")
    say(revision, "one")
    expect(log.locator(".log-line")).to_have_count(1)

    visit.context.set_offline(True)
    visit.page.evaluate("document.querySelector('live-log').disconnectedCallback()")
    say(revision, "two")
    visit.context.set_offline(False)
    visit.page.evaluate(
        "(log => { const copy = log.cloneNode(true); log.replaceWith(copy) })"
        "(document.querySelector('live-log'))"
    )
    say(revision, "three")

    expect(log.locator(".log-line span")).to_have_text(["one", "two", "three"])


def test_find_in_a_log_counts_and_walks(visit):
    revision, address = revision_page(visit, status="DEPLOYED")
    for message in ("apple", "pear", "Apple pie"):
        LogLineFactory(revision=revision, message=message)
    visit.goto(address)

    visit.page.keyboard.press("/")
    visit.page.keyboard.type("apple")
    expect(visit.page.locator("[data-match-count]")).to_have_text("1 of 2")
    visit.page.keyboard.press("Enter")

    expect(visit.page.locator("[data-match-count]")).to_have_text("2 of 2")
    expect(visit.page.locator(".is-current-match span")).to_have_text("Apple pie")


def nested(workspace):
    root = wire_run(
        name="desk",
        inputs={"messages": [{"role": "user", "content": "Where?"}]},
        extra={"metadata": {"thread_id": "t-1"}},
    )
    child = wire_run(root, name="find order", run_type="tool", error="Timeout: slow", outputs=None)
    leaf = wire_run(child, name="ask model", run_type="llm", outputs={"text": "It is **held**."})
    ingest(workspace, root, child, leaf)
    return root, child, leaf


def test_a_trace_is_walked_with_the_keyboard(visit):
    root, child, _ = nested(visit.workspace)
    project_id = read(visit.workspace, root["id"]).row.project_id
    page = visit.goto(f"{visit.base}/projects/p/{project_id}")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url("**/r/*")
    visit.awake()
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


def test_the_tree_is_searched(visit):
    root, *_ = nested(visit.workspace)
    project_id = read(visit.workspace, root["id"]).row.project_id
    page = visit.goto(f"{visit.base}/projects/p/{project_id}/r/{root['id']}")
    expect(page.get_by_role("treeitem")).to_have_count(3)

    page.keyboard.press("/")
    page.keyboard.type("model")
    expect(page.locator(".tree-row.is-dimmed")).to_have_count(2)
    page.keyboard.press("Enter")

    expect(page.locator("#run h2").first).to_have_text("ask model")


def test_a_trace_of_many_runs_keeps_few_rows(visit):
    root = wire_run(name="crawl")
    ingest(visit.workspace, root, *(wire_run(root, name=f"page {n}") for n in range(600)))
    project_id = read(visit.workspace, root["id"]).row.project_id
    page = visit.goto(f"{visit.base}/projects/p/{project_id}/r/{root['id']}")
    page.get_by_role("tree").focus()

    page.keyboard.press("End")

    expect(page.locator("#run h2").first).to_have_text(re.compile(r"page \d+"))
    assert page.get_by_role("treeitem").count() < 80


def test_new_traces_announce_themselves(visit):
    run_id = stored_run(visit.workspace)
    project_id = read(visit.workspace, run_id).row.project_id
    visit.goto(f"{visit.base}/projects/p/{project_id}")
    expect(visit.page.locator("tr[data-row]")).to_have_count(1)

    stored_run(visit.workspace)
    visit.page.get_by_role("link", name="1 new").click()

    expect(visit.page.locator("tr[data-row]")).to_have_count(2)


def test_the_palette_goes_to_a_deployment(visit):
    DeploymentFactory(workspace=visit.workspace, name="support-desk")

    visit.awake().keyboard.press("Control+k")
    visit.page.keyboard.type("desk")
    expect(visit.page.get_by_role("option")).to_have_count(1)
    visit.page.keyboard.press("Enter")

    expect(visit.page.get_by_role("heading", level=1)).to_have_text("support-desk")


def test_an_address_is_copied_and_the_theme_is_remembered_by_the_server(visit):
    DeploymentFactory(workspace=visit.workspace, name="support")
    page = visit.goto(f"{visit.base}/deployments")

    page.get_by_role("button", name="Copy address").click()
    page.get_by_role("button", name="Theme: system").click()
    page.get_by_role("button", name="Theme: light").click()
    page.reload()

    assert page.evaluate("navigator.clipboard.readText()").endswith("/agents/support")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")


def test_deleting_needs_the_name(visit):
    deployment = DeploymentFactory(workspace=visit.workspace, name="support")
    page = visit.goto(f"{visit.base}/deployments/{deployment.pk}/settings")

    page.get_by_role("button", name="Delete support").click()
    confirm = page.get_by_role("button", name="Delete", exact=True)
    expect(confirm).to_be_disabled()
    page.get_by_role("textbox", name="Name").fill("support")
    confirm.click()

    expect(page.get_by_role("status").filter(has_text="support was deleted")).to_be_visible()
    expect(page.get_by_text("No deployments yet")).to_be_visible()


def test_the_drawer_takes_the_focus_and_gives_it_back(visit):
    page = visit.page
    page.set_viewport_size({"width": 390, "height": 844})
    visit.goto(f"{visit.base}/projects")

    page.get_by_role("link", name="Open navigation").click()
    expect(page.get_by_role("link", name="Close navigation")).to_be_focused()
    page.keyboard.press("Escape")

    expect(page.get_by_role("link", name="Open navigation")).to_be_focused()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
