"""The `useStream` hook of the JavaScript package in a browser, on a page of another origin."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.browser.chromium import CHROMIUM_PATH
from tests.contract import chat_page
from tests.installation import wait_until
from tests.required_tools import skip_without

pytestmark = [
    skip_without(chat_page.missing_reason()),
    pytest.mark.xdist_group("use-stream"),
]
TIMEOUT_MS = 60_000
HUNDRED_WORDS = " ".join(f"word{number}" for number in range(100))


@pytest.fixture(scope="module")
def address(tmp_path_factory) -> Iterator[str]:
    with chat_page.serve_page(tmp_path_factory.mktemp("chat")) as address:
        yield address


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM_PATH, args=["--no-sandbox"], timeout=120_000
        )
        yield browser
        browser.close()


@pytest.fixture
def chat(address, chromium, live, agent_url) -> Iterator[Callable[..., Page]]:
    """A function that opens the page for a graph in a new tab."""
    context = chromium.new_context(base_url=address)
    context.set_default_timeout(TIMEOUT_MS)
    expect.set_options(timeout=TIMEOUT_MS)

    def open_page(graph: str = "chat", **options: str) -> Page:
        page = context.new_page()
        params = {"api": agent_url, "key": live.api_key, "graph": graph, **options}
        page.goto(f"/?{urlencode(params)}")
        return page

    yield open_page
    context.close()


def send_message(page: Page, text: str) -> None:
    page.get_by_label("Message").fill(text)
    page.keyboard.press("Enter")


def read_texts(page: Page) -> list[str]:
    return page.locator("#messages .text").all_inner_texts()


def expect_texts(page: Page, *expected: str) -> None:
    """Expect these messages and then an idle page."""
    expect(page.locator("#messages .text")).to_have_text(list(expected))
    expect(page.locator("#state")).to_have_text("idle")


def read_thread_id(page: Page) -> str:
    expect(page.locator("#thread")).to_have_text(re.compile(".{36}"))
    return page.locator("#thread").inner_text()


def read_recorded(page: Page, name: str) -> list:
    return page.evaluate(f"window.seen.{name}")


def run_statuses(client, thread: str) -> list[str]:
    return [run["status"] for run in client.runs.list(thread)]


def test_a_message_is_shown_at_once_and_its_reply_is_streamed(chat):
    page = chat()

    send_message(page, "words 100 every 0.005")
    expect(page.locator("#messages .text").first).to_have_text("words 100 every 0.005")

    expect_texts(page, "words 100 every 0.005", HUNDRED_WORDS)
    answer = page.locator("#messages li[data-type=ai]").get_attribute("data-id")
    grown = page.evaluate(f"window.grown[{json.dumps(answer)}]")
    assert len(grown) > 20
    assert all(after.startswith(before) for before, after in pairwise(grown))


def test_the_hook_reports_the_run_and_its_end(chat, client):
    page = chat()

    send_message(page, "hello")
    expect_texts(page, "hello", "You wrote: hello")

    [run] = client.runs.list(read_thread_id(page))
    assert read_recorded(page, "created") == [
        {"run_id": run["run_id"], "thread_id": read_thread_id(page)}
    ]
    wait_until(lambda: read_recorded(page, "finished"), "the end")
    assert [m["content"] for m in read_recorded(page, "finished")[0]["messages"]] == read_texts(
        page
    )
    assert read_recorded(page, "errors") == []


def test_a_second_message_creates_no_fork(chat, client):
    page = chat()

    send_message(page, "one")
    expect_texts(page, "one", "You wrote: one")
    send_message(page, "two")
    expect_texts(page, "one", "You wrote: one", "two", "You wrote: two")

    history = client.threads.get_history(read_thread_id(page), limit=20)
    assert [state["metadata"]["source"] for state in history] == ["loop", "loop", "input"] * 2
    assert page.locator("nav").count() == 0


def test_an_existing_thread_is_shown_after_a_reload(chat):
    page = chat()
    send_message(page, "one")
    expect_texts(page, "one", "You wrote: one")

    page.reload()

    expect_texts(page, "one", "You wrote: one")


def test_a_reload_during_a_run_resumes_the_stream(chat):
    page = chat()
    send_message(page, "words 100 every 0.02")
    expect(page.locator("#messages")).to_contain_text("word9")

    page.reload()

    expect(page.locator("#state")).to_have_text("busy")
    expect_texts(page, "words 100 every 0.02", HUNDRED_WORDS)


def test_another_tab_joins_the_stream(chat, client):
    page = chat()
    send_message(page, "words 100 every 0.02")
    expect(page.locator("#messages")).to_contain_text("word9")
    [run] = client.runs.list(read_thread_id(page))

    other = chat(thread=read_thread_id(page))
    expect(other.locator("#state")).to_have_text("idle")
    other.evaluate(f"window.stream.joinStream({json.dumps(run['run_id'])})")

    expect_texts(other, "words 100 every 0.02", HUNDRED_WORDS)
    expect_texts(page, "words 100 every 0.02", HUNDRED_WORDS)


def test_stop_cancels_a_resumable_run(chat, client):
    page = chat()
    send_message(page, "words 1000 every 0.05")
    expect(page.locator("#messages")).to_contain_text("word9")

    page.get_by_role("button", name="Stop").click()

    expect(page.locator("#state")).to_have_text("idle")
    wait_until(
        lambda: run_statuses(client, read_thread_id(page)) == ["interrupted"], "the cancelling"
    )


def test_stop_cancels_a_run_that_is_not_resumable(chat, client):
    page = chat(reconnect="0")
    send_message(page, "words 1000 every 0.05")
    expect(page.locator("#messages")).to_contain_text("word9")

    page.get_by_role("button", name="Stop").click()

    wait_until(
        lambda: run_statuses(client, read_thread_id(page)) == ["interrupted"], "the cancelling"
    )


def test_the_conversation_continues_after_a_stop(chat):
    page = chat()
    send_message(page, "words 100 every 0.05")
    expect(page.locator("#messages")).to_contain_text("word9")
    page.get_by_role("button", name="Stop").click()
    expect(page.locator("#state")).to_have_text("idle")

    send_message(page, "again")

    expect(page.locator("#messages .text").last).to_have_text("You wrote: again")


def test_an_interrupt_is_shown_and_resumed(chat):
    page = chat("react")
    send_message(page, 'call book_hotel {"city": "Oslo"}')

    question = page.locator(".interrupt")
    expect(question).to_contain_text('"book_hotel"')
    expect(page.locator("#state")).to_have_text("idle")
    page.get_by_role("button", name="Approve").click()

    expect(page.locator("#messages .text").last).to_have_text("Tool results: booked Oslo for 1")
    expect(question).to_have_count(0)


def test_an_interrupt_is_shown_after_a_reload(chat):
    page = chat("react")
    send_message(page, 'call book_hotel {"city": "Oslo"}')
    expect(page.locator(".interrupt")).to_contain_text('"book_hotel"')
    expect(page.locator("#state")).to_have_text("idle")

    page.reload()

    expect(page.locator(".interrupt")).to_contain_text('"book_hotel"')
    page.get_by_role("button", name="Approve").click()
    expect(page.locator("#messages .text").last).to_have_text("Tool results: booked Oslo for 1")


def test_several_interrupts_are_shown_and_resumed_by_id(chat):
    page = chat("human")
    page.evaluate("window.stream.submit({ ask: 2 })")
    expect(page.locator(".interrupt")).to_have_count(2)
    expect(page.locator("#state")).to_have_text("idle")

    page.evaluate(
        "window.stream.submit(undefined, { command: { resume: Object.fromEntries("
        "window.stream.interrupts.map(({ id, value }) => [id, value.approve])) } })"
    )

    expect(page.locator("#values")).to_contain_text("answer 1: send it? (1)")
    expect(page.locator(".interrupt")).to_have_count(0)


def test_a_breakpoint_is_shown_and_continued(chat):
    page = chat("react", options=json.dumps({"interruptBefore": ["tools"]}))
    send_message(page, 'call multiply {"a": 6, "b": 7}')

    expect(page.locator(".interrupt")).to_have_text('{"when":"breakpoint"}')
    expect(page.locator("#state")).to_have_text("idle")
    page.get_by_role("button", name="Continue").click()

    expect(page.locator("#messages .text").last).to_have_text("Tool results: 42")


def test_tool_calls_are_shown_with_their_results(chat):
    page = chat("react")
    send_message(page, 'call multiply {"a": 6, "b": 7}; weather {"city": "Oslo"}')

    expect(page.locator("#messages code")).to_have_text(
        ["multiply completed 42", "weather completed sunny in Oslo"]
    )


def test_a_regenerated_reply_is_a_branch(chat):
    page = chat()
    send_message(page, "one")
    expect_texts(page, "one", "You wrote: one")
    first = page.locator("li[data-type=ai]").get_attribute("data-id")

    page.get_by_role("button", name="Regenerate").click()
    expect(page.get_by_role("button", name=re.compile("Branch"))).to_have_count(2)
    expect(page.get_by_role("button", name="Branch 2")).to_have_attribute("aria-current", "true")
    expect_texts(page, "one", "You wrote: one")
    second = page.locator("li[data-type=ai]").get_attribute("data-id")
    page.get_by_role("button", name="Branch 1").click()

    expect(page.locator("li[data-type=ai]")).to_have_attribute("data-id", first)
    assert second != first


def test_an_edited_message_is_a_branch(chat):
    page = chat()
    send_message(page, "one")
    expect_texts(page, "one", "You wrote: one")
    send_message(page, "two")
    expect_texts(page, "one", "You wrote: one", "two", "You wrote: two")

    page.get_by_role("button", name="Edit").last.click()
    expect_texts(page, "one", "You wrote: one", "two indeed", "You wrote: two indeed")
    page.get_by_role("button", name="Branch 1").click()

    expect_texts(page, "one", "You wrote: one", "two", "You wrote: two")


def test_the_conversation_continues_from_the_shown_branch(chat, client):
    page = chat()
    send_message(page, "one")
    expect_texts(page, "one", "You wrote: one")
    page.get_by_role("button", name="Edit").click()
    expect_texts(page, "one indeed", "You wrote: one indeed")
    page.get_by_role("button", name="Branch 1").click()
    expect_texts(page, "one", "You wrote: one")

    send_message(page, "two")

    # After the run the hook shows the newest fork, so the messages are read from the thread.
    ends = ["success"] * 3
    wait_until(lambda: run_statuses(client, read_thread_id(page)) == ends, "the third run's end")
    messages = client.threads.get_state(read_thread_id(page))["values"]["messages"]
    assert [message["content"] for message in messages] == [
        "one", "You wrote: one", "two", "You wrote: two",
    ]  # fmt: skip


def test_a_failure_is_shown_and_the_next_message_succeeds(chat):
    page = chat()
    send_message(page, 'call weather {"city": "Atlantis"}')
    expect(page.get_by_role("alert")).to_have_text("no such city")
    # A page that can rejoin does so once and gets the failure again.
    assert set(read_recorded(page, "errors")) == {"no such city"}

    send_message(page, "hello")

    expect(page.locator("#messages .text").last).to_have_text("You wrote: hello")


def test_an_error_response_is_read_from_another_origin(chat):
    page = chat(key="slip_wrong")

    send_message(page, "hello")

    wait_until(lambda: read_recorded(page, "errors"), "the error")
    assert read_recorded(page, "errors")[0].startswith("HTTP 401")


def test_events_of_subgraphs_have_their_path(chat):
    page = chat("nested")
    page.evaluate("window.stream.submit({ topic: 'cats' }, { streamSubgraphs: true })")
    expect(page.locator("#values")).to_contain_text("published")

    custom = [
        (data, [label.partition(":")[0] for label in path])
        for data, path in read_recorded(page, "custom")
    ]
    assert custom == [
        ({"outlining": "cats"}, ["research"]),
        ({"fetching": "cats"}, ["research", "search"]),
    ]
    paths = [
        "|".join(label.partition(":")[0] for label in path)
        for _, path in read_recorded(page, "updates")
    ]
    assert set(paths) == {"", "research", "research|search"}


def test_a_second_message_interrupts_the_first_run(chat, client):
    # On a page that can rejoin, the hook itself returns to the first run.
    page = chat(reconnect="0")
    send_message(page, "words 100 every 0.05")
    expect(page.locator("#messages")).to_contain_text("word5")

    page.evaluate("window.say('rather this', { multitaskStrategy: 'interrupt' })")

    expect(page.locator("#messages .text").last).to_have_text("You wrote: rather this")
    assert run_statuses(client, read_thread_id(page)) == ["success", "interrupted"]


def test_headers_of_chat_uis_are_allowed(chat, client):
    page = chat(headers=json.dumps({"x-auth-scheme": "langsmith"}))

    send_message(page, "hello")

    expect_texts(page, "hello", "You wrote: hello")


def test_the_options_of_deep_agents_ui_are_accepted(chat, client):
    page = chat(
        "react",
        options=json.dumps({"config": {"recursion_limit": 100}, "interruptBefore": ["tools"]}),
    )
    send_message(page, 'call multiply {"a": 6, "b": 7}')
    expect(page.locator(".interrupt")).to_have_text('{"when":"breakpoint"}')
    expect(page.locator("#state")).to_have_text("idle")

    page.evaluate("window.stream.submit(null, { command: { goto: '__end__', update: null } })")

    expect(page.locator(".interrupt")).to_have_count(0)
    wait_until(
        lambda: client.threads.get(read_thread_id(page))["status"] == "idle", "the thread's end"
    )
