"""Experiment pages in Chromium: axe, widths and themes, and the way to the worst regression."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest
from playwright.sync_api import expect

from apps.datasets.models import Dataset
from apps.datasets.services.datasets import update_dataset
from apps.datasets.services.sharing import share_dataset
from apps.experiments.models import ComparativeExperiment
from apps.trace_store.postgres.postprocess.processor import process_all
from apps.tracing.services import create_project
from tests.browser.test_accessibility import VARIANTS, axe_violations, find_problems
from tests.factories.datasets import make_dataset
from tests.factories.experiments import UploadedRow, upload_rows

START = datetime(2026, 11, 1, tzinfo=UTC)
LONG = "The parcel leaves the warehouse on the next working day and arrives within two days. " * 3


def rows_of(experiment, count=30):
    """Scores fall from experiment to experiment on the first questions and rise on the last."""
    for number in range(count):
        change = experiment * (0.3 - number * 0.02)
        scores = {
            "correctness": round(min(1, max(0, 0.6 - change)), 3),
            "conciseness": round(0.5 + (number % 5) / 10, 2),
            # With more scores the table is wider than the page, in which it scrolls.
            **{f"rule_{rule}_of_the_help_desk": rule % 2 for rule in range(6)},
        }
        question = f"Question {number}: when does my parcel arrive?"
        answer = f"{LONG} Version {experiment}, answer {number}."
        is_failed = experiment == 2 and number == 3
        yield UploadedRow(
            question,
            f"Within two days, see rule {number}.",
            None if is_failed else answer,
            {} if is_failed else scores,
            "TimeoutError: the model did not answer within 60 s" if is_failed else None,
            seconds=1 + number % 7,
        )


@pytest.fixture
def experiments(session):
    """Four experiments on one dataset; the last with two repetitions."""
    names = ("baseline-gpt", "shorter-prompt", "smaller-model", "with-tools")
    projects = []
    for number, name in enumerate(names):
        rows = [*rows_of(number)]
        if number == 3:
            rows += rows_of(1)
        projects.append(
            upload_rows(
                session.workspace,
                name,
                rows,
                start=START + timedelta(days=number),
                experiment_metadata={"model": f"model-{number}", "temperature": 0.2},
            )
        )
    process_all()
    return projects


def dataset_path(session, dataset):
    return f"{session.path}/datasets/{dataset.pk}/experiments"


def compare_path(session, experiments, **params):
    dataset_id = experiments[0].reference_dataset_id
    query = f"baseline={experiments[0].pk}" + "".join(f"&e={row.pk}" for row in experiments[1:])
    query += "".join(f"&{name}={value}" for name, value in params.items())
    return f"{session.path}/datasets/{dataset_id}/experiments/compare?{query}"


def experiment_paths(session, experiments):
    """Yield the path of every page, with and without rows."""
    empty = dataset_path(session, make_dataset(session.workspace, {"a": 1}, name="empty"))
    yield from (empty, f"{empty}/pairwise", f"{empty}?q=nothing")
    dataset = Dataset.objects.for_workspace(session.workspace).get(name="questions")
    base = dataset_path(session, dataset)
    update_dataset(dataset=dataset, changes={"baseline_experiment_id": experiments[0].pk})
    create_project(
        workspace_id=session.workspace.pk,
        name="running-now",
        description="A larger model, with the same prompt",
        reference_dataset_id=dataset.pk,
        plan={"num_examples": 30, "num_repetitions": 2},
    )
    ComparativeExperiment(
        workspace=session.workspace,
        dataset=dataset,
        name="shorter or not",
        experiment_ids=[row.pk for row in experiments[:2]],
    ).save()
    yield from (base, f"{base}?q=prompt", f"{base}/charts", f"{base}/pairwise")
    share = share_dataset(dataset=dataset, with_experiments=True)
    yield f"/public/{share.token}/d/experiments"
    yield f"{base}/e/{experiments[1].pk}/edit"
    everything = compare_path(session, experiments)
    yield from (everything, everything.replace("/compare?", "/compare/summary?"))
    yield compare_path(session, experiments[:1])
    yield compare_path(session, experiments, key="correctness", worse=experiments[2].pk)
    yield compare_path(session, experiments, key="correctness", score_of=experiments[0].pk, low=9)
    yield compare_path(session, experiments, failed=experiments[2].pk)
    example_id = dataset.revisions.earliest("position").example_id
    example = everything.replace("/compare?", f"/compare/{example_id}?")
    yield from (example, f"{example}&with={experiments[3].pk}&diff=reference")
    yield f"{everything}&peek={example_id}"


@VARIANTS
def test_every_experiment_page_passes_axe_and_fits_the_viewport(session, experiments, variants):
    assert find_problems(session.page, experiment_paths(session, experiments), variants) == {}


def test_two_experiments_are_compared_down_to_the_worst_regression(session, experiments):
    dataset = Dataset.objects.for_workspace(session.workspace).get()
    page = session.goto(dataset_path(session, dataset))
    page.get_by_role("button", name="Baseline: baseline-gpt").click()
    expect(page.get_by_text("The baseline was changed.")).to_be_visible()
    session.wait_for_elements()
    page.get_by_label("Select baseline-gpt").check()
    page.get_by_label("Select smaller-model").check()
    page.get_by_role("button", name="Compare selected").click()
    expect(page.get_by_role("list", name="Compared experiments")).to_contain_text("smaller-model")
    page.locator("select[name=key]").select_option("correctness")
    page.get_by_role("button", name="Apply").click()
    # The filters are one line.
    assert page.locator(".compare-filters").bounding_box()["height"] < 44
    counts = page.locator("#counts-B")
    expect(counts).to_have_text(re.compile(r"14 worse\s+14 better"))

    counts.get_by_role("link", name="14 worse").click()
    session.wait_for_elements()
    expect(page.locator(".compare-count")).to_have_text(re.compile("1.14\\s+of 14\\s+examples"))
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    peek = page.get_by_role("complementary", name="Example")
    expect(peek).to_contain_text("Question 0")
    expect(peek).to_contain_text("correctness")
    expect(peek.locator("[data-verdict=worse]").first).to_be_visible()
    assert axe_violations(page) == []
    page.keyboard.press("j")
    expect(peek).to_contain_text("Question 1:")
    expect(page).to_have_url(re.compile("peek="))
    page.keyboard.press("k")
    expect(peek).to_contain_text("Question 0:")
    traces = peek.get_by_role("link", name="Trace")
    expect(traces).to_have_count(2)
    page.keyboard.press("Escape")
    expect(peek).to_be_hidden()
    expect(page.locator(".row-link").first).to_be_focused()

    page.keyboard.press("Enter")
    expect(peek).to_contain_text("Question 0:")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Example")).to_be_visible()
    page.get_by_role("link", name="Trace").nth(1).click()
    expect(page.get_by_role("heading", name="smaller-model").first).to_be_visible()


def test_peek_shows_the_clicked_experiment_its_repetitions_and_the_reference(session, experiments):
    page = session.goto(compare_path(session, experiments))
    row = page.locator("tr[data-row]").first
    # The statistics come after the page and move its rows, and a forced click does not wait.
    expect(page.get_by_role("region", name="Statistics")).to_be_visible()

    # The link of the row covers its cells.
    row.locator("td.comparison-output").nth(3).click(force=True)

    peek = page.get_by_role("complementary", name="Example")
    expect(peek.locator(".example-side h3").nth(1)).to_have_text("with-tools")
    peek.get_by_role("navigation", name="Repetition of with-tools").get_by_text("2").click()
    expect(peek).to_contain_text("Version 1, answer 0.")
    peek.get_by_role("link", name="Reference").click()
    expect(peek.get_by_role("heading", name="Text diff from the reference to D")).to_be_visible()
    peek.get_by_role("link", name="B", exact=True).click()
    expect(peek.locator(".example-side h3").nth(1)).to_have_text("shorter-prompt")
    page.reload()
    expect(peek).to_contain_text("Question 0:")
    peek.get_by_role("button", name="Close").click()
    expect(peek).to_be_hidden()


def test_charts_open_the_experiment_of_a_point(session, experiments):
    dataset = Dataset.objects.for_workspace(session.workspace).get()
    page = session.goto(dataset_path(session, dataset))
    chart = page.locator("time-chart").filter(has_text="correctness")
    over = chart.locator(".u-over")
    over.wait_for()
    box = over.bounding_box()

    over.hover(position={"x": box["width"] * 5 / 8, "y": 20})
    expect(chart.locator(".chart-tooltip time")).to_have_text("#3 smaller-model")
    over.click(position={"x": box["width"] * 5 / 8, "y": 20})

    page.wait_for_url(f"**/compare?e={experiments[2].pk}")


def test_more_than_ten_experiments_cannot_be_compared(session):
    dataset = make_dataset(session.workspace, {"a": 1})
    for number in range(11):
        create_project(
            workspace_id=session.workspace.pk,
            name=f"e{number}",
            reference_dataset_id=dataset.pk,
        )
    page = session.goto(dataset_path(session, dataset))
    boxes = page.locator("td.cell-check input")

    for index in range(11):
        boxes.nth(index).check()

    button = page.get_by_role("button", name="Compare selected")
    expect(button).to_be_disabled()
    expect(page.get_by_text("At most 10 can be compared.")).to_be_visible()
    boxes.nth(0).uncheck()
    expect(button).to_be_enabled()
