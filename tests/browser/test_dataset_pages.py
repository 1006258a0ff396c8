"""Dataset pages in Chromium: axe, both widths and themes, and journeys of editors."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

from playwright.sync_api import Request, Route, expect

from apps.datasets.models import Dataset, DatasetTag
from apps.datasets.services.examples import create_examples
from apps.datasets.services.search import create_index
from apps.datasets.services.sharing import share_dataset
from tests.browser.test_accessibility import VARIANTS, axe_violations, find_problems
from tests.datasets.page_helpers import SCHEMA, current
from tests.factories.datasets import make_dataset, new_example
from tests.factories.tracing import ingest, read_run, wire_run

CSV = "question,answer,split,note\nRed?,yes,train,a\nBlue?,no,test,b\nGreen?,yes,train,c\n"


def fill_dataset(workspace, **fields):
    """A dataset with two versions, splits, metadata, long texts and messages."""
    dataset = make_dataset(
        workspace, name="Support questions", description="From the help desk", **fields
    )
    create_examples(
        dataset=dataset,
        examples=[
            new_example(
                {"question": f"How do I change setting {number}? " * number},
                outputs={"answer": "Open Settings."},
                metadata={"level": number, "topic": "settings"},
                split=["train", "hard"] if number % 2 else "test",
            )
            for number in range(1, 8)
        ],
    )
    create_examples(
        dataset=dataset,
        examples=[
            new_example(
                {"messages": [{"role": "user", "content": "Hello"}]},
                outputs={"messages": [{"role": "assistant", "content": "Hi"}]},
            )
        ],
    )
    dataset.refresh_from_db()
    return dataset


def dataset_paths(session):
    """Yield the path of every page, with and without rows."""
    base, workspace = f"{session.path}/datasets", session.workspace
    yield from (base, f"{base}/new", f"{base}/import", f"{base}/deleted")
    empty = make_dataset(workspace, name="empty")
    yield from (f"{base}/{empty.pk}", f"{base}/{empty.pk}/versions", f"{base}/{empty.pk}/import")
    dataset = fill_dataset(workspace)
    page = f"{base}/{dataset.pk}"
    DatasetTag(
        workspace=workspace, dataset=dataset, name="production", as_of=dataset.latest_version_at
    ).save()
    newest, other = current(dataset)[:2]
    yield from (base, f"{base}?q=none", page, f"{page}?q=none", f"{page}?as_of=production")
    yield from (f"{page}/e/{newest.example_id}", f"{page}/e/{other.example_id}/edit")
    yield from (f"{page}/new-example", f"{page}/versions", f"{page}/versions/diff")
    yield from (f"{page}/settings", f"{page}/link", f"{page}/similar")
    create_index(dataset=dataset)
    yield f"{page}/similar?q=setting"
    share = share_dataset(dataset=dataset, with_experiments=True)
    yield f"/public/{share.token}/d/experiments"
    yield f"/public/{share.token}/d"
    yield f"/public/{share.token}/d/{newest.example_id}"
    run = wire_run(name="planner", start_time=datetime.now(UTC).isoformat())
    ingest(workspace, run)
    yield f"{base}/add?run={run['id']}"
    Dataset.objects.for_workspace(workspace).filter(pk=empty.pk).update(
        deleted_at=datetime.now(UTC)
    )
    yield from (f"{base}/deleted", f"{base}?deleted={empty.pk}")


@VARIANTS
def test_every_dataset_page_passes_axe_and_fits_the_viewport(session, variants):
    assert find_problems(session.page, dataset_paths(session), variants) == {}


def test_csv_is_imported_with_a_mapping(session):
    page = session.goto(f"{session.path}/datasets")
    page.get_by_role("link", name="Import").click()
    session.wait_for_elements()
    page.get_by_label("CSV or JSON lines file").set_input_files(
        {"name": "colours.csv", "mimeType": "text/csv", "buffer": CSV.encode()}
    )
    page.get_by_label("answer becomes").wait_for()
    assert page.get_by_label("answer becomes").input_value() == "outputs"
    page.get_by_label("note becomes").select_option("metadata")
    page.get_by_label("Key of question").fill("q")
    page.get_by_role("cell", name="Red?", exact=True).wait_for()
    violations = axe_violations(page)
    page.get_by_role("button", name="Import").click()
    page.get_by_role("heading", name="colours").wait_for()

    dataset = Dataset.objects.for_workspace(session.workspace).get()
    first = current(dataset)[0]
    assert violations == []
    assert (first.inputs, first.outputs, first.splits) == (
        {"q": "Red?"},
        {"answer": "yes"},
        ["train"],
    )
    assert first.metadata["note"] == "a"
    assert dataset.example_count == 3


def hold_preview(session):
    """Change the mapping of an import; return the page and the held request of its preview."""
    page = session.goto(f"{session.path}/datasets/import")
    session.wait_for_elements()
    page.get_by_label("CSV or JSON lines file").set_input_files(
        {"name": "colours.csv", "mimeType": "text/csv", "buffer": CSV.encode()}
    )
    page.get_by_label("answer becomes").wait_for()
    late: list[Route] = []

    def hold(route):
        late.append(route)

    page.route("**/datasets/import", hold, times=1)
    with page.expect_request(lambda request: request.method == "POST"):
        page.get_by_label("note becomes").select_option("metadata")
    while not late:
        page.wait_for_timeout(20)
    return page, late[0]


def test_typing_is_kept_when_an_earlier_preview_comes_late(session):
    page, late = hold_preview(session)
    page.get_by_label("Key of question").fill("q")

    with page.expect_response(lambda response: is_other_post(response.request, late)):
        late.continue_()

    assert page.get_by_label("Key of question").input_value() == "q"


def test_selected_text_stays_selected_when_a_preview_comes(session):
    page, late = hold_preview(session)
    page.get_by_label("Key of question").select_text()

    late.continue_()
    expect(page.locator("[data-mapping][aria-busy]")).to_have_count(0)
    page.keyboard.insert_text("q")

    assert page.get_by_label("Key of question").input_value() == "q"


def is_other_post(request: Request, route: Route) -> bool:
    return request.method == "POST" and request != route.request


def test_import_shows_problems_by_row_and_field(session):
    dataset = make_dataset(session.workspace, inputs_schema=SCHEMA)
    page = session.goto(f"{session.path}/datasets/{dataset.pk}/import")
    page.get_by_label("Read numbers, lists and objects").check()
    page.get_by_label("CSV or JSON lines file").set_input_files(
        {"name": "rows.csv", "mimeType": "text/csv", "buffer": b"n\n1\nx\n"}
    )

    row = page.get_by_role("row", name="2 inputs.n")
    row.wait_for()

    assert "is not of type" in row.inner_text()
    assert page.get_by_role("button", name="Import").is_disabled()


def test_example_is_edited_beside_the_list_with_schema_errors(session):
    dataset = make_dataset(session.workspace, {"n": 1}, {"n": 2}, inputs_schema=SCHEMA)
    page = session.goto(f"{session.path}/datasets/{dataset.pk}")
    page.locator(".row-link").first.click()
    page.get_by_role("link", name="Edit").click()
    inputs = page.get_by_role("textbox", name="Inputs")
    inputs.wait_for()
    session.wait_for_elements()  # the editor's script is loaded with the panel
    inputs.fill('{"n": ')
    page.get_by_text("Not valid JSON").wait_for()
    inputs.fill('{"n": "one"}')
    page.get_by_role("button", name="Save").click()
    page.get_by_text("'one' is not of type 'integer'").wait_for()
    violations = axe_violations(page)
    inputs.fill('{"n": 11}')
    page.get_by_role("button", name="Save").click()
    page.locator("tr .row-link", has_text="11").wait_for()
    page.get_by_role("heading", name="Example", exact=True).wait_for()
    session.console_errors[:] = [text for text in session.console_errors if "422" not in text]

    assert violations == []
    assert [row.inputs for row in current(dataset)] == [{"n": 11}, {"n": 2}]


def test_selected_examples_change_split_and_are_restored(session):
    dataset = make_dataset(session.workspace, {"q": "a"}, {"q": "b"}, {"q": "c"})
    page = session.goto(f"{session.path}/datasets/{dataset.pk}")
    page.keyboard.press("j")
    page.keyboard.press("x")
    page.keyboard.press("j")
    page.keyboard.press("x")
    page.get_by_text("2 selected").wait_for()
    page.get_by_label("Split of the selection").fill("train")
    page.get_by_role("button", name="Move to split").click()
    page.get_by_text("2 examples now in the split train").wait_for()
    session.wait_for_elements()
    page.get_by_label("Select all on the page").check()
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("button", name="Undo").click()
    page.get_by_text("3 examples restored").wait_for()

    assert sorted(row.splits[0] for row in current(dataset)) == ["base", "train", "train"]


def test_failing_run_is_added_to_a_dataset(session):
    run = wire_run(
        name="planner",
        inputs={"q": "hard"},
        outputs=None,
        error="ValueError: no plan",
        start_time=datetime.now(UTC).isoformat(),
    )
    ingest(session.workspace, run)
    dataset = make_dataset(session.workspace, name="failures")
    project_id = read_run(session.workspace, run["id"]).row.project_id
    page = session.goto(f"{session.path}/projects/p/{project_id}/r/{run['id']}")
    page.get_by_role("link", name="Add to dataset").click()
    dialog = page.get_by_role("dialog", name="Add to dataset")
    dialog.get_by_label("Find a dataset").fill("fail")
    dialog.get_by_label("failures").check()
    dialog.get_by_label("Split").fill("regressions")
    violations = axe_violations(page)
    dialog.get_by_role("button", name="Add to dataset").click()
    page.get_by_role("link", name="Open the dataset").click()
    page.get_by_role("heading", name="failures").wait_for()

    example = current(dataset).get()
    assert violations == []
    assert (example.inputs, example.splits) == ({"q": "hard"}, ["regressions"])
    assert example.source_run_id == UUID(run["id"])


def test_selection_of_the_run_list_becomes_examples(session):
    runs = [
        wire_run(name=f"run {n}", inputs={"q": n}, start_time=datetime.now(UTC).isoformat())
        for n in range(3)
    ]
    ingest(session.workspace, *runs)
    project_id = read_run(session.workspace, runs[0]["id"]).row.project_id
    page = session.goto(f"{session.path}/projects/p/{project_id}")
    page.get_by_label("Select all on the page").check()
    page.get_by_role("button", name="Add to dataset").click()
    page.get_by_text("3 runs become examples").wait_for()
    page.get_by_label("Name of the new dataset").fill("collected")
    page.get_by_role("button", name="Add to dataset").click()
    page.get_by_role("heading", name="collected").wait_for()

    dataset = Dataset.objects.for_workspace(session.workspace).get()
    assert sorted(row.inputs["q"] for row in current(dataset)) == [0, 1, 2]


def test_version_is_tagged_and_compared(session):
    dataset = make_dataset(session.workspace, {"q": "a"})
    create_examples(dataset=dataset, examples=[new_example({"q": "added later"})])
    dataset.refresh_from_db()
    page = session.goto(f"{session.path}/datasets/{dataset.pk}/versions")
    page.locator("summary", has_text="Tag the version").first.click()
    page.get_by_label("Tag of the version").first.fill("production")
    page.get_by_role("button", name="Save").first.click()
    page.get_by_text("production is now the version of").wait_for()
    page.get_by_role("link", name="Diff of").first.click()
    # Exact: a section whose id ends in 1, before the text of its example, contains "1 added", too.
    page.get_by_text("1 added", exact=True).wait_for()

    assert "added later" in page.locator(".change-preview").inner_text()
    tag = DatasetTag.objects.for_workspace(session.workspace).get()
    assert (tag.name, tag.as_of) == ("production", dataset.latest_version_at)
