"""The transcript of a trace in a real browser: keys, the run panel, errors, narrow screens."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from playwright.sync_api import expect

from tests.browser.test_accessibility import axe_violations
from tests.browser.test_trace_page import run_path
from tests.factories.tracing import ingest, wire_run
from tests.tracing.messages.payloads import ANTHROPIC, CHAT_COMPLETIONS, PIXEL_ADDRESS

START = datetime.now(UTC) - timedelta(hours=1)
THREAD = {"extra": {"metadata": {"thread_id": "t-1", "lc_agent_name": "support_agent"}}}
INNER = {"extra": {"metadata": {"thread_id": "t-1", "lc_agent_name": "researcher"}}}
QUESTION = {"role": "user", "content": "Where is order 7?"}
TRACEBACK = """NotFound('no such parcel')

Traceback (most recent call last):
  File "/srv/agent/desk/tools.py", line 41, in find_parcel
    raise NotFound("no such parcel")
desk.errors.NotFound: no such parcel"""


def step(parent, begin: float, end: float, **fields):
    return wire_run(
        parent,
        start=START + timedelta(seconds=begin),
        end_time=(START + timedelta(seconds=end)).isoformat(),
        **fields,
    )


def ingest_conversation(workspace):
    """A trace with parallel tool calls of which one failed, and an agent within the agent."""
    question = {"role": "user", "content": CHAT_COMPLETIONS[0]["messages"][1]["content"]}
    usage = {"usage": {"prompt_tokens": 412, "completion_tokens": 58, "total_tokens": 470}}
    final = (
        "## Order 7\n\nIt **arrives on Tuesday**, from the second warehouse.\n\n- paid\n- packed"
    )
    root = step(
        None,
        0,
        12,
        name="desk",
        inputs={"messages": [question]},
        outputs={"messages": [question, {"role": "assistant", "content": final}]},
        **THREAD,
    )
    first = CHAT_COMPLETIONS[0]["messages"]
    ask = {"message": {**first[2], "content": "I look the order up."}}
    chat = {"run_type": "llm", "name": "ChatOpenAI", **THREAD}
    task = step(
        root, 6.5, 9.5, name="research", run_type="tool", outputs={"output": "High."}, **THREAD
    )
    inner = step(
        task,
        6.6,
        9.4,
        name="researcher",
        inputs={"messages": [{"role": "user", "content": "Find out about the tides."}]},
        outputs={"messages": [{"role": "assistant", "content": "High at noon."}]},
        **INNER,
    )
    research = [{"id": "c3", "function": {"name": "research", "arguments": '{"topic": "tides"}'}}]
    history = [*first, {"role": "assistant", "content": "", "tool_calls": research}]
    runs = [
        root,
        step(
            root,
            1,
            2.4,
            inputs={"messages": first[:2]},
            outputs={"choices": [ask], **usage},
            events=[{"name": "new_token", "time": (START + timedelta(seconds=1.3)).isoformat()}],
            **chat,
        ),
        step(
            root,
            2.5,
            4,
            name="find_order",
            run_type="tool",
            inputs={"order": 7},
            outputs={"output": {"order": 7, "state": "shipped", "lines": list(range(40))}},
            **THREAD,
        ),
        step(
            root,
            2.5,
            2.9,
            name="find_parcel",
            run_type="tool",
            inputs={"parcel": "x"},
            outputs=None,
            error=TRACEBACK,
            **THREAD,
        ),
        step(
            root,
            4.1,
            6,
            inputs={"messages": first},
            outputs={"choices": [{"message": history[-1]}], **usage},
            **chat,
        ),
        task,
        inner,
        step(
            inner,
            7,
            8,
            name="ChatAnthropic",
            run_type="llm",
            inputs=ANTHROPIC[0],
            outputs=ANTHROPIC[1],
            **INNER,
        ),
        step(
            root,
            11,
            11.9,
            inputs={
                "messages": [*history, {"role": "tool", "tool_call_id": "c3", "content": "High."}]
            },
            outputs={"choices": [{"message": {"role": "assistant", "content": final}}], **usage},
            **chat,
        ),
    ]
    ingest(workspace, *runs)
    return runs


def sideways(page) -> int:
    """Return by how many pixels the page or the transcript scrolls sideways."""
    return int(
        page.evaluate(
            "() => Math.max(...[document.documentElement,"
            " document.querySelector('.transcript-scroll')].filter(Boolean)"
            ".map((e) => e.scrollWidth - e.clientWidth))"
        )
    )


def test_transcript_opens_at_the_error_and_opens_runs_next_to_it(session):
    runs = ingest_conversation(session.workspace)
    page = session.goto(run_path(session, runs[0]["id"]))
    failed = page.locator(f"#b-{runs[3]['id']}")

    expect(failed).to_be_in_viewport()
    expect(failed).to_contain_text("NotFound('no such parcel')")
    expect(page.locator(f"img[src='{PIXEL_ADDRESS}']").first).to_be_visible()
    expect(page.locator("#run")).to_be_hidden()
    page.get_by_role("link", name="Open run find_parcel").click()
    expect(page.locator("#run")).to_contain_text("find_parcel")
    page.keyboard.press("Escape")
    expect(page.locator("#run")).to_be_hidden()


def test_keys_walk_the_blocks_expand_an_agent_and_switch_to_the_tree(session):
    runs = ingest_conversation(session.workspace)
    page = session.goto(run_path(session, runs[0]["id"]))
    card = page.locator(".agent-card")
    expect(card).not_to_have_attribute("open", "")

    for _ in range(3):
        page.keyboard.press("j")
    expect(page.locator(".transcript-block:focus")).to_have_attribute("data-run", runs[4]["id"])
    page.keyboard.press("ArrowRight")
    expect(card).to_have_attribute("open", "")
    expect(card.locator(".agent-path")).to_contain_text("support_agent")
    page.keyboard.press("Enter")
    expect(page.locator("#run")).to_contain_text("ChatOpenAI")
    page.keyboard.press("y")
    expect(page.get_by_text("Copied as Markdown")).to_be_visible()
    page.keyboard.press("w")
    page.wait_for_url("**view=tree")
    session.wait_for_elements()
    page.keyboard.press("t")
    page.wait_for_url("**view=transcript")


def test_transcript_fits_narrow_screens_and_has_no_accessibility_faults(session):
    runs = ingest_conversation(session.workspace)
    trace = run_path(session, runs[0]["id"])
    project = trace.partition("/r/")[0]

    for address in (trace, f"{project}/thread?thread=t-1"):
        for width in (1440, 390):
            for scheme in ("light", "dark"):
                session.page.set_viewport_size({"width": width, "height": 900})
                session.page.emulate_media(color_scheme=scheme)
                page = session.goto(address)
                page.evaluate(
                    "document.querySelectorAll('.transcript-blocks details')"
                    ".forEach((details) => (details.open = true))"
                )

                assert sideways(page) <= 0, (address, width)
                violations = axe_violations(page)
                assert violations == [], "\n".join(violations)


def test_transcript_without_scripts_has_its_content(session, site_url):
    runs = ingest_conversation(session.workspace)
    state = session.context.storage_state()
    context = session.context.browser.new_context(
        java_script_enabled=False, storage_state=state, base_url=site_url
    )
    page = context.new_page()

    page.goto(run_path(session, runs[0]["id"]))

    expect(page.get_by_text("I look the order up.")).to_be_visible()
    expect(page.get_by_role("link", name="Open run find_parcel")).to_have_attribute(
        "href", f"{run_path(session, runs[3]['id'])}?view=tree"
    )
    context.close()


def test_text_is_found_in_folded_parts_of_a_transcript(session):
    root, *_ = ingest_conversation(session.workspace)
    page = session.goto(run_path(session, root["id"]))
    session.wait_for_elements()

    page.keyboard.press("/")
    field = page.get_by_role("searchbox", name="Find in the transcript")
    expect(field).to_be_focused()
    field.fill("high at noon")
    expect(page.locator("[data-find-count]")).to_have_text("1 of 1")
    expect(page.get_by_text("High at noon.").first).to_be_visible()
    field.fill("nothing like this")
    expect(page.locator("[data-find-count]")).to_have_text("No match")
    page.keyboard.press("Escape")
    expect(field).to_be_hidden()


def test_steps_of_two_traces_are_walked_by_keys(session):
    first, *_ = ingest_conversation(session.workspace)
    second, *_ = ingest_conversation(session.workspace)
    extra = step(second, 10, 11, name="check", inputs={}, outputs={"ok": True})
    ingest(session.workspace, extra)
    project = run_path(session, first["id"]).partition("/r/")[0]
    page = session.goto(f"{project}/compare?a={first['id']}&b={second['id']}")
    session.wait_for_elements()

    expect(page.get_by_role("heading", name="First difference")).to_contain_text("check: only in B")
    current = page.locator('.compare-step[aria-current="step"]')
    expect(current).to_contain_text("check")
    page.keyboard.press("k")
    expect(current).not_to_contain_text("check")
    page.keyboard.press("n")
    expect(current).to_contain_text("check")
    expect(page.locator("#step")).to_contain_text("only in B")
    page.keyboard.press("o")
    expect(page.locator(".compare-skipped").first).to_contain_text("equal step")
    for width in (1440, 390):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert axe_violations(page) == []


PAINT = """() => new Promise((resolve) => {
  new PerformanceObserver((list) => resolve(list.getEntries()[0].startTime))
    .observe({ type: "paint", buffered: true });
})"""


@pytest.mark.slow  # The time of a paint depends on the machine.
def test_transcript_of_2000_runs_paints_soon_after_its_response(session):
    """SCREENS.md asks for 400 ms; a busy machine gets five times that."""
    root = step(None, 0, 200, name="desk", inputs={"messages": [QUESTION]}, **THREAD)
    runs = [root]
    for number in range(500):
        begin = number / 3
        node = step(root, begin, begin + 0.3, name="node", **THREAD)
        reply = {"messages": [{"role": "assistant", "content": f"Answer **{number}**."}]}
        chat = {"run_type": "llm", "name": "chat", "inputs": {"messages": [QUESTION]}}
        runs += [
            node,
            step(node, begin, begin + 0.1, outputs=reply, **chat, **THREAD),
            step(node, begin, begin + 0.1, name="find", run_type="tool", **THREAD),
            step(node, begin, begin + 0.1, name="chain", **THREAD),
        ]
    ingest(session.workspace, *runs)
    page = session.goto(run_path(session, root["id"]))
    times = []
    for _ in range(3):
        page.reload()
        painted = page.evaluate(PAINT)
        answered = page.evaluate("performance.getEntriesByType('navigation')[0].responseEnd")
        times.append(round(painted - answered))

    print(f"first paint {sorted(times)} ms after the response, {len(runs)} runs")  # noqa: T201
    expect(page.locator(".transcript-block").first).to_be_visible()
    assert min(times) < 2_000


def test_large_input_adds_at_most_forty_lines_to_the_page(session):
    def height(content):
        question = {"role": "user", "content": content}
        root = step(None, 0, 2, name="desk", inputs={"messages": [question]}, **THREAD)
        reply = {"messages": [{"role": "assistant", "content": "Read."}]}
        chat = {"run_type": "llm", "name": "chat", "inputs": {"messages": [question]}}
        ingest(session.workspace, root, step(root, 0, 1, outputs=reply, **chat, **THREAD))
        page = session.goto(run_path(session, root["id"]))
        return page.locator(".transcript-blocks").bounding_box()["height"]

    large = "A line of a report.\n" * 18_400
    assert len(large) > 367_000

    line_px = 22
    assert height(large) - height("A line of a report.") < 40 * line_px
    session.page.set_viewport_size({"width": 390, "height": 844})
    assert sideways(session.page) <= 0
