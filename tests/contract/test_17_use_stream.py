"""`useStream` of the JavaScript package in a real browser, on a page of another origin."""

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
    skip_without(chat_page.missing()),
    pytest.mark.xdist_group("browser"),
]
PATIENCE_MS = 60_000
HUNDRED = " ".join(f"word{number}" for number in range(100))


@pytest.fixture(scope="module")
def address(tmp_path_factory) -> Iterator[str]:
    with chat_page.served(tmp_path_factory.mktemp("chat")) as address:
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
    """Opens the page on a graph; a new tab of the same browser each time."""
    context = chromium.new_context(base_url=address)
    context.set_default_timeout(PATIENCE_MS)
    expect.set_options(timeout=PATIENCE_MS)

    def open_(graph: str = "chat", **asked: str) -> Page:
        page = context.new_page()
        words = {"api": agent_url, "key": live.api_key, "graph": graph, **asked}
        page.goto(f"/?{urlencode(words)}")
        return page

    yield open_
    context.close()


def say(page: Page, text: str) -> None:
    page.get_by_label("Message").fill(text)
    page.keyboard.press("Enter")


def texts(page: Page) -> list[str]:
    return page.locator("#messages .text").all_inner_texts()


def has_texts(page: Page, *expected: str) -> None:
    """When the page is idle, these are the messages."""
    expect(page.locator("#messages .text")).to_have_text(list(expected))
    expect(page.locator("#state")).to_have_text("idle")


def thread_of(page: Page) -> str:
    expect(page.locator("#thread")).to_have_text(re.compile(".{36}"))
    return page.locator("#thread").inner_text()


def seen(page: Page, what: str) -> list:
    return page.evaluate(f"window.seen.{what}")


def statuses(client, thread: str) -> list[str]:
    return [run["status"] for run in client.runs.list(thread)]


def test_a_message_is_shown_at_once_and_answered_token_by_token(chat):
    page = chat()

    say(page, "words 100 every 0.005")
    expect(page.locator("#messages .text").first).to_have_text("words 100 every 0.005")

    has_texts(page, "words 100 every 0.005", HUNDRED)
    answer = page.locator("#messages li[data-type=ai]").get_attribute("data-id")
    grown = page.evaluate(f"window.grown[{json.dumps(answer)}]")
    assert len(grown) > 20
    assert all(after.startswith(before) for before, after in pairwise(grown))


def test_the_page_learns_the_run_and_its_end(chat, client):
    page = chat()

    say(page, "hello")
    has_texts(page, "hello", "You said: hello")

    [run] = client.runs.list(thread_of(page))
    assert seen(page, "created") == [{"run_id": run["run_id"], "thread_id": thread_of(page)}]
    wait_until(lambda: seen(page, "finished"), "the end", 60)
    assert [m["content"] for m in seen(page, "finished")[0]["messages"]] == texts(page)
    assert seen(page, "errors") == []


def test_a_conversation_goes_on_without_forks(chat, client):
    page = chat()

    say(page, "one")
    has_texts(page, "one", "You said: one")
    say(page, "two")
    has_texts(page, "one", "You said: one", "two", "You said: two")

    history = client.threads.get_history(thread_of(page), limit=20)
    assert [state["metadata"]["source"] for state in history] == ["loop", "loop", "input"] * 2
    assert page.locator("nav").count() == 0


def test_an_old_thread_is_shown_when_opened(chat):
    page = chat()
    say(page, "one")
    has_texts(page, "one", "You said: one")

    page.reload()

    has_texts(page, "one", "You said: one")


def test_a_reload_in_the_middle_takes_the_stream_up_again(chat):
    page = chat()
    say(page, "words 100 every 0.02")
    expect(page.locator("#messages")).to_contain_text("word9")

    page.reload()

    expect(page.locator("#state")).to_have_text("busy")
    has_texts(page, "words 100 every 0.02", HUNDRED)


def test_another_tab_joins_the_running_stream(chat, client):
    page = chat()
    say(page, "words 100 every 0.02")
    expect(page.locator("#messages")).to_contain_text("word9")
    [run] = client.runs.list(thread_of(page))

    other = chat(thread=thread_of(page))
    expect(other.locator("#state")).to_have_text("idle")
    other.evaluate(f"window.stream.joinStream({json.dumps(run['run_id'])})")

    has_texts(other, "words 100 every 0.02", HUNDRED)
    has_texts(page, "words 100 every 0.02", HUNDRED)


def test_stop_cancels_a_run_that_the_page_could_rejoin(chat, client):
    page = chat()
    say(page, "words 100 every 0.05")
    expect(page.locator("#messages")).to_contain_text("word9")

    page.get_by_role("button", name="Stop").click()

    expect(page.locator("#state")).to_have_text("idle")
    wait_until(lambda: statuses(client, thread_of(page)) == ["interrupted"], "the cancelling", 60)


def test_stop_leaves_and_so_cancels_a_run_that_could_not_be_rejoined(chat, client):
    page = chat(reconnect="0")
    say(page, "words 100 every 0.05")
    expect(page.locator("#messages")).to_contain_text("word9")

    page.get_by_role("button", name="Stop").click()

    wait_until(lambda: statuses(client, thread_of(page)) == ["interrupted"], "the cancelling", 60)


def test_after_a_stop_the_conversation_goes_on(chat):
    page = chat()
    say(page, "words 100 every 0.05")
    expect(page.locator("#messages")).to_contain_text("word9")
    page.get_by_role("button", name="Stop").click()
    expect(page.locator("#state")).to_have_text("idle")

    say(page, "again")

    expect(page.locator("#messages .text").last).to_have_text("You said: again")


def test_a_question_is_shown_and_answered(chat):
    page = chat("react")
    say(page, 'call book_hotel {"city": "Oslo"}')

    question = page.locator(".interrupt")
    expect(question).to_contain_text('"book_hotel"')
    expect(page.locator("#state")).to_have_text("idle")
    page.get_by_role("button", name="Approve").click()

    expect(page.locator("#messages .text").last).to_have_text("The tools said: booked Oslo for 1")
    expect(question).to_have_count(0)


def test_a_question_is_still_there_after_a_reload(chat):
    page = chat("react")
    say(page, 'call book_hotel {"city": "Oslo"}')
    expect(page.locator(".interrupt")).to_contain_text('"book_hotel"')
    expect(page.locator("#state")).to_have_text("idle")

    page.reload()

    expect(page.locator(".interrupt")).to_contain_text('"book_hotel"')
    page.get_by_role("button", name="Approve").click()
    expect(page.locator("#messages .text").last).to_have_text("The tools said: booked Oslo for 1")


def test_several_questions_are_shown_and_answered_by_id(chat):
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


def test_a_breakpoint_is_shown_and_passed(chat):
    page = chat("react", options=json.dumps({"interruptBefore": ["tools"]}))
    say(page, 'call multiply {"a": 6, "b": 7}')

    expect(page.locator(".interrupt")).to_have_text('{"when":"breakpoint"}')
    expect(page.locator("#state")).to_have_text("idle")
    page.get_by_role("button", name="Continue").click()

    expect(page.locator("#messages .text").last).to_have_text("The tools said: 42")


def test_tool_calls_are_shown_with_their_results(chat):
    page = chat("react")
    say(page, 'call multiply {"a": 6, "b": 7}; weather {"city": "Oslo"}')

    expect(page.locator("#messages code")).to_have_text(
        ["multiply completed 42", "weather completed sunny in Oslo"]
    )


def test_an_answer_is_made_again_as_a_branch_that_can_be_left(chat):
    page = chat()
    say(page, "one")
    has_texts(page, "one", "You said: one")
    first = page.locator("li[data-type=ai]").get_attribute("data-id")

    page.get_by_role("button", name="Regenerate").click()
    expect(page.get_by_role("button", name=re.compile("Branch"))).to_have_count(2)
    expect(page.get_by_role("button", name="Branch 2")).to_have_attribute("aria-current", "true")
    has_texts(page, "one", "You said: one")
    second = page.locator("li[data-type=ai]").get_attribute("data-id")
    page.get_by_role("button", name="Branch 1").click()

    expect(page.locator("li[data-type=ai]")).to_have_attribute("data-id", first)
    assert second != first


def test_a_message_is_edited_as_a_branch(chat):
    page = chat()
    say(page, "one")
    has_texts(page, "one", "You said: one")
    say(page, "two")
    has_texts(page, "one", "You said: one", "two", "You said: two")

    page.get_by_role("button", name="Edit").last.click()
    has_texts(page, "one", "You said: one", "two indeed", "You said: two indeed")
    page.get_by_role("button", name="Branch 1").click()

    has_texts(page, "one", "You said: one", "two", "You said: two")


def test_the_conversation_goes_on_from_the_branch_that_is_shown(chat, client):
    page = chat()
    say(page, "one")
    has_texts(page, "one", "You said: one")
    page.get_by_role("button", name="Edit").click()
    has_texts(page, "one indeed", "You said: one indeed")
    page.get_by_role("button", name="Branch 1").click()
    has_texts(page, "one", "You said: one")

    say(page, "two")

    # When the run is over, the hook shows the newest fork, so it is the thread that tells.
    ends = ["success"] * 3
    wait_until(lambda: statuses(client, thread_of(page)) == ends, "the third run's end", 60)
    messages = client.threads.get_state(thread_of(page))["values"]["messages"]
    assert [message["content"] for message in messages] == [
        "one", "You said: one", "two", "You said: two",
    ]  # fmt: skip


def test_a_failure_is_shown_and_the_next_message_goes_through(chat):
    page = chat()
    say(page, 'call weather {"city": "Atlantis"}')
    expect(page.get_by_role("alert")).to_have_text("no such city")
    # A page that can rejoin does so once, and hears of the failure again.
    assert set(seen(page, "errors")) == {"no such city"}

    say(page, "hello")

    expect(page.locator("#messages .text").last).to_have_text("You said: hello")


def test_a_refusal_can_be_read_from_another_origin(chat):
    page = chat(key="slip_wrong")

    say(page, "hello")

    wait_until(lambda: seen(page, "errors"), "the error", 60)
    assert seen(page, "errors")[0].startswith("HTTP 401")


def test_events_of_graphs_below_carry_their_path(chat):
    page = chat("nested")
    page.evaluate("window.stream.submit({ topic: 'cats' }, { streamSubgraphs: true })")
    expect(page.locator("#values")).to_contain_text("published")

    custom = [
        (data, [label.partition(":")[0] for label in path]) for data, path in seen(page, "custom")
    ]
    assert custom == [
        ({"outlining": "cats"}, ["research"]),
        ({"fetching": "cats"}, ["research", "search"]),
    ]
    paths = [
        "|".join(label.partition(":")[0] for label in path) for _, path in seen(page, "updates")
    ]
    assert set(paths) == {"", "research", "research|search"}


def test_a_second_message_may_take_the_place_of_the_first(chat, client):
    # On a page that could rejoin, the hook itself goes back to the first run.
    page = chat(reconnect="0")
    say(page, "words 100 every 0.05")
    expect(page.locator("#messages")).to_contain_text("word5")

    page.evaluate("window.say('rather this', { multitaskStrategy: 'interrupt' })")

    expect(page.locator("#messages .text").last).to_have_text("You said: rather this")
    assert statuses(client, thread_of(page)) == ["success", "interrupted"]


def test_headers_that_chat_uis_add_are_let_in(chat, client):
    page = chat(headers=json.dumps({"x-auth-scheme": "langsmith"}))

    say(page, "hello")

    has_texts(page, "hello", "You said: hello")


def test_the_options_of_deep_agents_ui_are_taken(chat, client):
    page = chat(
        "react",
        options=json.dumps({"config": {"recursion_limit": 100}, "interruptBefore": ["tools"]}),
    )
    say(page, 'call multiply {"a": 6, "b": 7}')
    expect(page.locator(".interrupt")).to_have_text('{"when":"breakpoint"}')
    expect(page.locator("#state")).to_have_text("idle")

    page.evaluate("window.stream.submit(null, { command: { goto: '__end__', update: null } })")

    expect(page.locator(".interrupt")).to_have_count(0)
    wait_until(
        lambda: client.threads.get(thread_of(page))["status"] == "idle", "the thread's end", 10
    )
