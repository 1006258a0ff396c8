"""Journeys: first run to first trace, words to a shared trace, a deployment to an answer."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import expect

from apps.api_keys.models import ApiKey
from tests.browser.conftest import SETTLED
from tests.browser.test_accessibility import axe_violations
from tests.browser.test_first_run import answer_calls, create_agent
from tests.browser.test_transcript import TRACEBACK, sideways
from tests.factories.tracing import ingest, stored_run, wire_run

VARIANTS = pytest.mark.parametrize(
    ("width", "theme"),
    [
        pytest.param(390, "dark", id="390-dark"),
        *(
            pytest.param(width, theme, id=f"{width}-{theme}", marks=pytest.mark.slow)
            for width, theme in ((390, "light"), (1440, "dark"), (1440, "light"))
        ),
    ],
)
NARROW = 1024
"""On pages up to this width a row opens the page of its trace, without a preview."""
QUESTION = {"role": "user", "content": "Refund the expired card of order 7, please."}
REPLY = {"role": "assistant", "content": "The card of order 7 is refunded."}
ASK = {
    "role": "assistant",
    "content": "I look the parcel up.",
    "tool_calls": [{"id": "c1", "function": {"name": "find_parcel", "arguments": '{"order": 7}'}}],
}


def ingest_trace(workspace, start, *, has_failed=False):
    """Store a trace of a model call, its tool call and, unless the tool failed, the reply."""

    def step(parent, begin, end, **fields):
        end_time = (start + timedelta(seconds=end)).isoformat()
        begin_at = start + timedelta(seconds=begin)
        return wire_run(parent, start=begin_at, end_time=end_time, session_name="support", **fields)

    result = {"error": TRACEBACK, "outputs": None} if has_failed else {"outputs": {"found": True}}
    end = (
        {"error": TRACEBACK, "outputs": None} if has_failed else {"outputs": {"messages": [REPLY]}}
    )
    root = step(None, 0, 5, name="desk", inputs={"messages": [QUESTION]}, **end)
    model = {"run_type": "llm", "name": "ChatOpenAI", "inputs": {"messages": [QUESTION]}}
    runs = [
        root,
        step(root, 0.1, 1, outputs={"choices": [{"message": ASK}]}, **model),
        step(root, 1, 2, name="find_parcel", run_type="tool", inputs={"order": 7}, **result),
    ]
    if not has_failed:
        runs.append(step(root, 2, 4, outputs={"choices": [{"message": REPLY}]}, **model))
    ingest(workspace, *runs)
    return root


def check(page):
    """Require that the page as it stands passes axe and does not scroll sideways."""
    page.locator(SETTLED).wait_for(state="attached")
    assert axe_violations(page) == []
    assert sideways(page) <= 0, page.url


def set_variant(session, width, theme):
    session.page.set_viewport_size({"width": width, "height": 844})
    session.page.emulate_media(color_scheme=theme, reduced_motion="reduce")


@VARIANTS
def test_first_copy_makes_one_key_and_the_arriving_run_is_named(session, width, theme):
    set_variant(session, width, theme)
    page = session.page
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    session.goto(f"{session.path}/start")
    prompt = page.locator("#snippet-agent")
    expect(prompt).to_contain_text("LANGSMITH_API_KEY=<your key>")
    assert not ApiKey.objects.exists()
    check(page)

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
    check(page)
    page.get_by_role("link", name="Open", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Trace support_agent")
    check(page)


@VARIANTS
def test_failing_run_of_yesterday_is_found_read_compared_and_shared(session, width, theme):
    now = datetime.now(UTC)
    good = ingest_trace(session.workspace, now - timedelta(hours=2))
    ingest_trace(session.workspace, now - timedelta(hours=26), has_failed=True)
    for hours in (1, 20, 30):
        stored_run(session.workspace, session_name="support", start=now - timedelta(hours=hours))
    set_variant(session, width, theme)
    page = session.goto(f"{session.path}/projects")

    page.get_by_role("link", name="support").click()
    session.wait_for_elements()
    page.get_by_role("combobox", name="Query").fill("refund card status:error")
    page.keyboard.press("Escape")
    page.keyboard.press("Enter")
    row = page.locator("tr[data-row]")
    expect(row).to_have_count(1)
    expect(row).to_contain_text("NotFound('no such parcel')")
    check(page)

    row.get_by_role("link", name="desk").click()
    if width > NARROW:
        expect(page.get_by_label("Run preview")).to_contain_text("no such parcel")
        page.keyboard.press("Enter")
    failed = page.locator(".tool-call[data-error]")
    expect(failed).to_be_in_viewport()
    expect(failed).to_contain_text("desk/tools.py:41")
    expect(page.get_by_text("I look the parcel up.")).to_be_visible()
    check(page)
    trace_url = page.url

    page.get_by_role("link", name="Compare").click()
    check(page)
    page.get_by_role("link", name="Refund the expired card").click()
    expect(page.get_by_role("heading", name="First difference")).to_contain_text("find_parcel")
    assert good["id"] in page.url
    check(page)

    session.goto(trace_url)
    page.get_by_role("link", name="Share").click()
    dialog = page.get_by_role("dialog", name="Share trace")
    dialog.get_by_role("button", name="Create public link").click()
    public_url = dialog.get_by_role("link", name="Open").get_attribute("href")
    check(page)
    session.context.clear_cookies()
    page.goto(urlsplit(public_url).path)  # of the installation that the test serves
    expect(page.get_by_text("I look the parcel up.")).to_be_visible()
    expect(page.locator(".tool-call[data-error]")).to_contain_text("no such parcel")
    check(page)


@VARIANTS
def test_agent_answers_on_the_page_of_its_deployment(session, width, theme):
    agent = create_agent(session.workspace)
    run_id = stored_run(session.workspace, session_name=agent.name, name="sample-agent")
    answer_calls(session.page, run_id, "8", "5")
    set_variant(session, width, theme)
    page = session.goto(f"{session.path}/deployments")

    page.get_by_role("link", name="sample-agent").click()
    session.wait_for_elements()
    page.get_by_label("Message").fill("What is 12 * 7 + 1?")
    check(page)
    page.keyboard.press("Enter")

    expect(page.locator(".agent-answer-reply")).to_have_text("85")
    check(page)
    page.get_by_role("link", name="Open the trace").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Trace sample-agent")
    check(page)
