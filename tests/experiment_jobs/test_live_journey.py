"""Journeys in Chromium: from a CSV file to a regression, and from a prompt to the SDK."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from langchain_core.prompts import ChatPromptTemplate
from langsmith import Client
from playwright.sync_api import Page, expect, sync_playwright

from tests.browser.chromium import CHROMIUM_PATH
from tests.browser.conftest import DEFAULT_TIMEOUT_MS, LOADED, PAGE_STATE, VIEWPORT, open_page
from tests.browser.test_accessibility import axe_violations
from tests.installation import wait_until
from tests.live_client import client
from tests.required_tools import skip_without

__all__ = ["client"]

pytestmark = [
    skip_without(None if CHROMIUM_PATH else "Chromium is not installed"),
    pytest.mark.xdist_group("evaluation"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning"),
]
CSV = "question,expected\nWhat is 1 + 1?,2\nWhat is 2 + 2?,4\nWhat is 3 + 3?,6\n"
MAPPING = '{"messages": [{"role": "user", "content": "{{question}}"}]}'


@pytest.fixture
def page(live) -> Iterator[Page]:
    """A tab in which the administrator of the running platform is signed in."""
    expect.set_options(timeout=DEFAULT_TIMEOUT_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM_PATH, args=["--no-sandbox"], timeout=120_000
        )
        context = browser.new_context(base_url=live.url, viewport=VIEWPORT)
        context.set_default_timeout(DEFAULT_TIMEOUT_MS)
        context.add_init_script(path=PAGE_STATE)
        page = open_page(context)
        page.goto("/sign-in")
        page.get_by_label("Email").fill(live.email)
        page.get_by_label("Password").fill(live.password)
        page.get_by_role("button", name="Sign in").click()
        page.wait_for_url("**/o/**")
        yield page
        browser.close()


def wait_for_scripts(page: Page) -> None:
    expect(page.locator(LOADED)).to_have_count(1)
    expect(page.locator("body :not(:defined)")).to_have_count(0)


def import_csv(page: Page, workspace: str, name: str) -> str:
    """Import the file with a mapping; return the path of the dataset."""
    page.goto(f"{workspace}/datasets/import")
    wait_for_scripts(page)
    page.get_by_label("CSV or JSON lines file").set_input_files(
        {"name": f"{name}.csv", "mimeType": "text/csv", "buffer": CSV.encode()}
    )
    page.get_by_label("expected becomes").select_option("outputs")
    page.get_by_label("Key of expected").fill("answer")
    page.get_by_role("cell", name="What is 1 + 1?", exact=True).wait_for()
    page.get_by_role("button", name="Import").click()
    page.get_by_role("heading", name=name).wait_for()
    return re.sub(r"[?#].*", "", page.url)


def run_experiment(page: Page, dataset: str, name: str) -> None:
    """Run the sample agent on every example and wait until the page shows the end."""
    page.goto(f"{dataset}/experiments/run")
    page.get_by_label("Deployment").select_option(label="sample-agent")
    page.get_by_label("Assistant").fill("agent")
    page.get_by_label("Name").fill(name)
    page.get_by_label("Input mapping").fill(MAPPING)
    page.get_by_role("button", name="Run", exact=True).click()
    jobs = page.get_by_label("Experiments run by the platform")
    row = jobs.get_by_role("row").filter(has_text=name)
    expect(row).to_contain_text("3 of 3 runs", timeout=300_000)
    expect(row).to_contain_text("Completed")


def score(client: Client, dataset_name: str, prefix: str, low: str) -> None:
    """Give each run of the experiment a score: a bad one on the question `low`."""
    [project] = [
        project
        for project in client.list_projects(reference_dataset_name=dataset_name)
        if project.name.startswith(prefix)
    ]
    runs = list(client.list_runs(project_id=project.id, is_root=True))
    assert len(runs) == 3
    for run in runs:
        value = 0.2 if run.inputs["question"] == low else 0.9
        client.create_feedback(
            run.id, "correctness", score=value, trace_id=run.id, session_id=project.id,
            start_time=run.start_time,
        )  # fmt: skip
    client.flush()

    def is_counted() -> bool:
        stats = client.read_project(project_id=project.id, include_stats=True).feedback_stats
        return (stats or {}).get("correctness", {}).get("n") == 3

    wait_until(is_counted, f"the scores of {project.name}")


def test_a_file_becomes_experiments_whose_regression_is_found(live, sample_agent, client, page):
    workspace, name = f"/o/{live.workspace_id}", f"sums {uuid.uuid4()}"
    violations: list[str] = []

    dataset = import_csv(page, workspace, name)
    violations += axe_violations(page)
    run_experiment(page, dataset, "before")
    run_experiment(page, dataset, "after")
    violations += axe_violations(page)
    score(client, name, "before", low="")
    score(client, name, "after", low="What is 2 + 2?")

    page.goto(f"{dataset}/experiments")
    wait_for_scripts(page)
    page.get_by_role("button", name=re.compile("Baseline: before")).click()
    expect(page.get_by_text("The baseline was changed.")).to_be_visible()
    wait_for_scripts(page)
    page.get_by_label(re.compile("Select before")).check()
    page.get_by_label(re.compile("Select after")).check()
    page.get_by_role("button", name="Compare selected").click()
    page.locator("select[name=key]").select_option("correctness")
    page.get_by_role("button", name="Apply").click()
    page.locator("#counts-B").get_by_role("link", name="1 worse").click()
    wait_for_scripts(page)
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    peek = page.get_by_role("complementary", name="Example")
    expect(peek).to_contain_text("What is 2 + 2?")
    expect(peek.get_by_role("link", name="Trace")).to_have_count(2)
    violations += axe_violations(page)

    failing = uuid.uuid4()
    client.create_run(
        "planner", {"question": "What is 7 + 7?"}, "chain", id=failing, error="ValueError: no plan",
        project_name=f"production {failing}", start_time=datetime.now(UTC),
        end_time=datetime.now(UTC),
    )  # fmt: skip
    client.flush()
    wait_until(lambda: client.has_project(f"production {failing}"), "the project of the run")
    project = client.read_project(project_name=f"production {failing}")
    page.goto(f"{workspace}/projects/p/{project.id}/r/{failing}")
    page.get_by_role("link", name="Add to dataset").click()
    dialog = page.get_by_role("dialog", name="Add to dataset")
    dialog.get_by_label("Find a dataset").fill(name)
    dialog.get_by_label(name).check()
    dialog.get_by_role("button", name="Add to dataset").click()
    page.get_by_role("link", name="Open the dataset").click()
    page.get_by_role("heading", name=name).wait_for()

    assert violations == []
    examples = list(client.list_examples(dataset_name=name))
    assert len(examples) == 4
    assert [e.inputs for e in examples if e.source_run_id == failing] == [
        {"question": "What is 7 + 7?"}
    ]
    outputs = sorted((e.outputs for e in examples if e.outputs), key=str)
    assert outputs == [{"answer": answer} for answer in ("2", "4", "6")]


def test_a_prompt_is_edited_compared_tagged_and_pulled(live, client, page):
    workspace, name = f"/o/{live.workspace_id}", f"greeter-{uuid.uuid4().hex[:8]}"
    client.push_prompt(name, object=ChatPromptTemplate([("human", "Hello {name}")]))

    page.goto(f"{workspace}/prompts/p/{name}")
    page.get_by_role("link", name="Edit").click()
    page.get_by_label("Text").first.fill("Good morning {name}")
    page.get_by_label("What changed").fill("politer")
    page.get_by_role("button", name="Commit").click()
    page.get_by_role("link", name="What changed").click()
    page.get_by_role("heading", name="Messages").wait_for()
    added = page.locator("[data-kind=added]").first.inner_text()
    violations = axe_violations(page)
    page.get_by_role("link", name="Prompt", exact=True).click()
    page.get_by_label("New tag of this commit").fill("production")
    page.get_by_role("button", name="Tag this commit").click()
    expect(page.get_by_text("production is now commit")).to_be_visible()
    page.get_by_role("link", name="production", exact=True).click()
    expect(page.get_by_role("heading", name="History of the tag production")).to_be_visible()
    expect(page.get_by_text("New tag", exact=True)).to_be_visible()
    violations += axe_violations(page)

    assert violations == []
    assert "Good morning {name}" in added
    pulled = client.pull_prompt(f"{name}:production", skip_cache=True)
    assert pulled.invoke({"name": "Ada"}).to_string() == "Human: Good morning Ada"
