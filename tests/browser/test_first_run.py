"""The first run in a real browser: the key of the first Copy, and the line that waits."""

from __future__ import annotations

from datetime import UTC, datetime

from playwright.sync_api import expect

from apps.api_keys.models import ApiKey
from tests.factories.tracing import stored_run


def test_first_copy_makes_one_key_and_the_arriving_run_is_named(session):
    page = session.page
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    session.goto(f"{session.path}/start")
    prompt = page.locator("#snippet-agent")
    expect(prompt).to_contain_text("LANGSMITH_API_KEY=<your key>")
    assert not ApiKey.objects.exists()

    page.get_by_label("Project").fill("support desk")
    page.get_by_role("button", name="Copy prompt").click()
    expect(prompt).to_contain_text("LANGSMITH_API_KEY=slip_")
    expect(prompt).to_contain_text("LANGSMITH_PROJECT=support desk")
    expect(page.get_by_text("Copied")).to_be_visible()
    copied = page.evaluate("navigator.clipboard.readText()")
    page.get_by_role("tab", name="Python").click()
    page.locator("#start-python").get_by_role("button", name="Copy").click()

    key = copied.partition("LANGSMITH_API_KEY=")[2].split()[0]
    expect(page.locator("#snippet-python")).to_contain_text(f"LANGSMITH_API_KEY={key}")
    assert key not in page.url
    assert ApiKey.objects.count() == 1

    stored_run(session.workspace, name="support_agent", start=datetime.now(UTC))
    expect(page.locator("[data-arrived]")).to_contain_text("support_agent")
    assert page.title().startswith("● 1 run")
    page.get_by_role("link", name="Open", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Trace support_agent")
