"""Pages of experiments: list, baseline, renaming, comparison, one example, pairwise comparisons."""

from __future__ import annotations

import html
import re
from uuid import uuid4

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from apps.experiments.models import ComparativeExperiment
from apps.feedback.models import FeedbackConfig
from apps.tracing.models import Project
from apps.tracing.services import create_project
from tests.console.conftest import create_workspace_user, signed_in
from tests.factories.datasets import make_dataset

HTMX = {"HX-Request": "true"}


@pytest.fixture
def url(workspace, dataset):
    return f"/o/{workspace.pk}/datasets/{dataset.pk}/experiments"


@pytest.fixture
def reader(workspace):
    return signed_in(create_workspace_user(workspace, "viewer"))


def text_of(response):
    """The text of the page without markup, with single spaces and plain hyphens."""
    content = re.sub(r"<(script|style).*?</\1>", "", response.content.decode(), flags=re.DOTALL)
    text = html.unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", content)))
    return text.replace("\N{MINUS SIGN}", "-").replace("\N{EN DASH}", "-")


def names_of(response):
    """The names of the listed experiments, or the inputs of the listed examples."""
    links = re.findall(r'class="row-link[^>]*>(.*?)</a>', response.content.decode(), re.DOTALL)
    return [html.unescape(link.strip()) for link in links]


def compare(page, url, *experiments, headers=None, **params):
    """Open the comparison; the first experiment is the baseline."""
    first, *others = experiments
    params = {"baseline": first.id, "e": [item.id for item in others], **params}
    return page.get(f"{url}/compare", params, headers=headers or {})


@pytest.fixture
def scored(make_experiment, examples, score):
    """A baseline and an experiment that is worse on example 0, better on 1 and equal on 2."""
    base = make_experiment("base", *examples)
    other = make_experiment("other", *examples)
    for values, experiment in (((1, 0.2, 0.5), base), ((0.25, 0.9, 0.5), other)):
        for example_id, value in zip(examples, values, strict=True):
            score(experiment.runs[example_id][0], "correct", value)
    return base, other


def test_list_shows_scores_progress_and_baseline(page, url, scored, dataset, make_experiment):
    base, _ = scored
    make_experiment(
        "third",
        description="smaller model",
        extra={"metadata": {"model": "small", "num_repetitions": 4, "__ls_runner": "evaluate"}},
        plan={"num_examples": 3, "num_repetitions": 4},
    )
    dataset.baseline_experiment_id = base.project.pk
    dataset.save()

    response = page.get(url)

    text = text_of(response)
    assert names_of(response) == ["third", "other", "base"]
    assert "base #1 baseline" in text
    assert "smaller model model small" in text
    assert "0.55" in text  # the mean of `other`
    assert "mean 0.567 of 3, from 0.2 to 1; bars from 0 to 1" in html.unescape(
        response.content.decode()
    )
    assert "0 of 12" in text
    assert "__ls_runner" not in text  # SDKs add it
    assert "$0" not in text  # no run has a cost, which is not a cost of zero


def test_list_is_searched_by_name_and_metadata(page, url, make_experiment):
    make_experiment("alpha", extra={"metadata": {"model": "small", "depth": 2}})
    make_experiment("beta", extra={"metadata": {"model": "large"}})

    assert names_of(page.get(url, {"q": "ALP"})) == ["alpha"]
    assert names_of(page.get(url, {"metadata": "model=large"})) == ["beta"]
    assert names_of(page.get(url, {"metadata": "depth=2, model = small"})) == ["alpha"]
    assert names_of(page.get(url, {"metadata": "model"})) == ["beta", "alpha"]
    assert "No matching experiments" in text_of(page.get(url, {"q": "gamma"}))


def test_list_is_sorted_by_name_and_by_score(page, url, scored, make_experiment):
    make_experiment("unscored")

    assert names_of(page.get(url, {"sort": "name"})) == ["base", "other", "unscored"]
    assert names_of(page.get(url, {"sort": "score.correct"})) == ["other", "base", "unscored"]
    assert names_of(page.get(url, {"sort": "-score.correct"})) == ["base", "other", "unscored"]


def test_list_without_experiments_shows_code_that_runs_one(page, url):
    text = text_of(page.get(url))

    assert "No experiments yet" in text
    assert "client.evaluate(" in text
    assert 'data="questions"' in text


def test_list_is_paged(page, url, workspace, dataset):
    for number in range(27):
        create_project(
            workspace_id=workspace.pk, name=f"e{number:02}", reference_dataset_id=dataset.pk
        )

    first = page.get(url)
    second = page.get(url, {"from": 25})

    assert len(names_of(first)) == 25
    assert names_of(second) == ["e01", "e00"]
    assert "from=25" in first.content.decode()


def test_charts_have_a_point_for_each_experiment(page, url, scored):
    response = page.get(f"{url}/charts", headers=HTMX)

    text = text_of(response)
    assert "correct" in text
    assert "#2 other 0.55 #1 base 0.5667" in text
    assert "Latency p50" in text
    assert "Cost" not in text  # no run has one


def test_baseline_is_set_and_cleared(  # noqa: PLR0917  (fixtures)
    page, reader, url, scored, dataset, workspace
):
    base, _ = scored

    refused = reader.post(f"{url}/baseline", {"experiment": base.id})
    page.post(f"{url}/baseline", {"experiment": base.id})
    dataset.refresh_from_db()
    baseline_id = dataset.baseline_experiment_id
    other = create_project(
        workspace_id=workspace.pk,
        name="elsewhere",
        reference_dataset_id=make_dataset(workspace, name="another").pk,
    )
    foreign = page.post(f"{url}/baseline", {"experiment": other.pk})
    page.post(f"{url}/baseline")
    dataset.refresh_from_db()

    assert refused.status_code == 403
    assert str(baseline_id) == base.id
    assert foreign.status_code == 404
    assert dataset.baseline_experiment_id is None


def test_one_experiment_is_compared_with_the_baseline_of_the_dataset(page, url, scored, dataset):
    base, other = scored
    dataset.baseline_experiment_id = base.project.pk
    dataset.save()

    text = text_of(page.get(f"{url}/compare", {"e": other.id}))
    alone = text_of(page.get(f"{url}/compare", {"baseline": other.id}))
    Project.unscoped.filter(pk=base.project.pk).update(deleted_at="2026-11-02T00:00Z")
    after_deletion = page.get(f"{url}/compare", {"e": other.id})

    assert "A base baseline" in text
    assert "B other" in text
    assert "A other baseline" in alone
    assert after_deletion.status_code == 200


def test_experiment_is_renamed(page, reader, url, scored):
    base, other = scored

    refused = reader.post(f"{url}/e/{other.id}/edit", {"name": "x"})
    taken = page.post(f"{url}/e/{other.id}/edit", {"name": "base"})
    page.post(f"{url}/e/{other.id}/edit", {"name": "second", "description": "more sources"})

    other.project.refresh_from_db()
    assert refused.status_code == 403
    assert taken.status_code == 422
    assert "already exists" in text_of(taken)
    assert (other.project.name, other.project.description) == ("second", "more sources")
    assert base.project.name == "base"


def test_experiment_is_deleted_if_its_name_is_typed(page, url, scored):
    _, other = scored

    page.post(f"{url}/e/{other.id}/delete", {"name": "wrong"})
    other.project.refresh_from_db()
    is_kept = other.project.deleted_at is None
    page.post(f"{url}/e/{other.id}/delete", {"name": "other"})

    other.project.refresh_from_db()
    assert is_kept
    assert other.project.deleted_at is not None
    assert names_of(page.get(url)) == ["base"]


def test_comparison_shows_each_example_with_scores_and_differences(page, url, scored):
    response = compare(page, url, *scored)

    text = text_of(response)
    assert names_of(response) == ['{"question":0}', '{"question":1}', '{"question":2}']
    assert "base" in text
    assert "correct 0.25 -0.75 worse" in text
    assert "correct 0.9 +0.7 better" in text
    assert "1-3 examples" in text


def test_a_lower_score_is_better_if_the_config_of_the_key_says_so(page, url, scored, workspace):
    FeedbackConfig.objects.for_workspace(workspace).filter(key="correct").update(
        is_lower_score_better=True
    )

    text = text_of(compare(page, url, *scored))
    worse = compare(page, url, *scored, key="correct", worse=scored[1].id)

    assert "correct 0.25 -0.75 better" in text
    assert names_of(worse) == ['{"question":1}']


def test_repetitions_are_averaged(page, url, make_experiment, examples, score):
    base = make_experiment("base", examples[0], examples[0], examples[0])
    other = make_experiment("other", examples[0], examples[0], examples[0])
    # The sums of these floats differ, because their order does.
    for experiment, values in ((base, (0.1, 0.2, 0.3)), (other, (0.3, 0.2, 0.1))):
        for run_id, value in zip(experiment.runs[examples[0]], values, strict=True):
            score(run_id, "correct", value)

    text = text_of(compare(page, url, base, other))
    worse = compare(page, url, base, other, key="correct", worse=other.id)
    better = compare(page, url, base, other, key="correct", better=other.id)

    assert text.count("correct 0.2 3\N{MULTIPLICATION SIGN}") == 2
    assert (names_of(worse), names_of(better)) == ([], [])


def test_filters_cover_all_examples_and_regressions_have_the_worst_first(
    page, url, workspace, make_experiment, score
):
    dataset = make_dataset(workspace, *({"question": number} for number in range(60)), name="many")
    ids = {row.inputs["question"]: row.example_id for row in dataset.revisions.all()}
    Project.unscoped.all().delete()
    base = make_experiment("base", *(ids[number] for number in range(60)))
    other = make_experiment("other", *(ids[number] for number in range(60)))
    Project.unscoped.update(reference_dataset_id=dataset.pk)
    for number in range(60):
        score(base.runs[ids[number]][0], "correct", 0.5)
        score(other.runs[ids[number]][0], "correct", 1 if number < 30 else 0.5 - number / 1000)
    url = url.replace(url.split("/")[-2], str(dataset.pk))

    worse = compare(page, url, base, other, key="correct", worse=other.id)
    rest = compare(page, url, base, other, key="correct", worse=other.id, **{"from": 25})
    better = compare(page, url, base, other, key="correct", better=other.id)
    lowest = compare(page, url, base, other, key="correct", sort=f"low.{other.id}")

    assert names_of(worse)[:2] == ['{"question":59}', '{"question":58}']
    assert "1-25 of 30 examples" in text_of(worse)
    assert names_of(rest)[-1] == '{"question":30}'
    assert len(names_of(rest)) == 5
    assert "1-25 of 30 examples" in text_of(better)
    assert names_of(lowest)[0] == '{"question":59}'


def test_examples_are_filtered_by_score_range_and_by_error(page, url, scored, examples):
    base, other = scored
    other.add_run(examples[1], error="broken")

    in_range = {"key": "correct", "score_of": base.id, "low": "0.5", "high": "1"}
    both = compare(page, url, *scored, **in_range)
    failed = compare(page, url, *scored, failed=other.id)
    none = compare(page, url, *scored, failed=base.id)

    assert names_of(both) == ['{"question":0}', '{"question":2}']
    assert names_of(failed) == ['{"question":1}']
    assert "1 failed" in text_of(failed)
    assert "No matching examples" in text_of(none)


@pytest.mark.parametrize(
    ("params", "status"),
    [
        ({"e": "no-id"}, 404),
        ({"e": str(uuid4())}, 404),
        ({"e": [str(uuid4()) for _ in range(11)]}, 400),
        ({"worse": str(uuid4()), "key": "correct"}, 400),
        ({"sort": "sideways.x"}, 404),
        ({"low": "1"}, 400),
        ({"low": "many", "key": "correct"}, 400),
        ({"pairwise": str(uuid4())}, 404),
    ],
)
def test_invalid_parameters_are_refused(page, url, scored, params, status):
    response = page.get(f"{url}/compare", {"baseline": scored[0].id} | params)

    assert response.status_code == status


def test_a_filter_by_score_needs_a_key_and_another_experiment(page, url, scored):
    base, other = scored

    assert compare(page, url, base, other, worse=other.id).status_code == 400
    assert compare(page, url, base, other, worse=base.id, key="correct").status_code == 400
    assert compare(page, url, base, other, sort=f"up.{other.id}", key="x").status_code == 400


def test_ids_of_another_workspace_are_not_found(  # noqa: PLR0917  (fixtures)
    page, url, scored, other_workspace, workspace, examples
):
    base, _ = scored
    foreign = make_dataset(other_workspace, {"question": 9}, name="foreign")
    project = create_project(
        workspace_id=other_workspace.pk, name="theirs", reference_dataset_id=foreign.pk
    )
    example_id = foreign.revisions.get().example_id
    theirs = f"/o/{workspace.pk}/datasets/{foreign.pk}/experiments"

    responses = [
        page.get(theirs),
        page.get(f"{theirs}/charts"),
        page.get(f"{theirs}/pairwise"),
        page.get(f"{theirs}/compare", {"e": project.pk}),
        page.get(f"{url}/compare", {"baseline": base.id, "e": project.pk}),
        page.get(f"{url}/compare/summary", {"baseline": project.pk}),
        page.get(f"{url}/compare/{example_id}", {"baseline": base.id}),
        page.get(f"{url}/compare/{examples[0]}", {"baseline": base.id, "with": project.pk}),
        page.get(f"{url}/e/{project.pk}/edit"),
        page.post(f"{url}/e/{project.pk}/delete", {"name": "theirs"}),
        page.post(f"{url}/baseline", {"experiment": project.pk}),
    ]

    assert [response.status_code for response in responses] == [404] * len(responses)


def test_summary_counts_better_and_worse_examples_with_links(page, url, scored):
    response = compare(page, f"{url}", *scored, key="correct")
    summary_url = html.unescape(
        re.search(r'hx-get="([^"]+/summary[^"]*)"', response.content.decode())[1]
    )

    summary = page.get(summary_url, headers=HTMX)

    text, content = text_of(summary), html.unescape(summary.content.decode())
    assert "3 examples" in text
    assert "correct 0.567 0.55 -0.017 worse 1 worse 1 better" in text
    assert "Tokens - - Cost - -" in text  # no run has any
    [link] = re.findall(r'href="([^"]+worse=[^"]+)"', content)[:1]
    assert names_of(page.get(link)) == ['{"question":0}']
    assert 'id="counts-B" hx-swap-oob="true"' in content


def test_example_shows_both_outputs_their_diff_and_links_to_the_traces(page, url, scored, examples):
    base, other = scored
    params = {"baseline": base.id, "e": other.id}

    response = page.get(f"{url}/compare/{examples[0]}", params)
    part = page.get(f"{url}/compare/{examples[0]}", params, headers=HTMX)
    reference = page.get(f"{url}/compare/{examples[0]}", params | {"diff": "reference"})

    text, content = text_of(response), response.content.decode()
    assert "correct 1 0.25 -0.75 (-75 %) worse" in text
    assert "Text diff from A to B" in text
    assert f"/r/{base.runs[examples[0]][0]}" in content
    assert f"/r/{other.runs[examples[0]][0]}" in content
    assert "<mark>other</mark>" in content or 'data-kind="added"' in content
    assert "<html" not in part.content.decode()
    assert "Text diff from the reference to B" in text_of(reference)


def test_example_shows_the_selected_repetition_and_experiment(
    page, url, make_experiment, examples, score
):
    base = make_experiment("base", examples[0])
    second = make_experiment("second", examples[1])
    third = make_experiment("third")
    third.add_run(examples[0], outputs={"answer": "one"})
    run_id = third.add_run(examples[0], error="out of memory")
    score(run_id, "correct", 0, comment="no answer")
    params = {"baseline": base.id, "e": [second.id, third.id]}
    path = f"{url}/compare/{examples[0]}"

    without_run = text_of(page.get(path, params))
    failed = text_of(page.get(path, params | {"with": third.id, "b": 1}))

    assert "This experiment has no run of the example." in without_run
    assert "out of memory" in failed
    assert "correct no answer" in failed
    assert page.get(f"{url}/compare/{examples[2]}", params).status_code == 404


def test_number_of_queries_does_not_grow(page, url, make_experiment, examples, score):
    def add(name):
        experiment = make_experiment(name, *examples)
        for runs in experiment.runs.values():
            score(runs[0], "correct", 0.5)
        return experiment

    def count(read):
        with CaptureQueriesContext(
            connection,
        ) as queries:
            assert read().status_code == 200
        return len(queries)

    experiments = [add("one"), add("two")]
    params = {"key": "correct", "worse": experiments[1].id}
    reads = [
        lambda: page.get(url),
        lambda: page.get(f"{url}/charts", headers=HTMX),
        lambda: compare(page, url, *experiments),
        lambda: compare(page, url, *experiments, **params),
        lambda: compare(page, f"{url}", *experiments, headers=HTMX),
    ]
    before = [count(read) for read in reads]
    experiments += [add("three"), add("four")]

    after = [count(read) for read in reads]

    assert after == before
    assert max(after) <= 25


def test_pairwise_comparisons_are_listed_with_scores_and_deleted(  # noqa: PLR0917  (fixtures)
    page, reader, url, scored, dataset, workspace, score, examples
):
    base, other = scored
    comparison = ComparativeExperiment(
        workspace=workspace,
        dataset=dataset,
        name="duel",
        experiment_ids=[base.project.pk, other.project.pk],
    )
    comparison.save()
    for experiment, value in ((base, 0), (other, 1)):
        score(
            experiment.runs[examples[0]][0],
            "preferred",
            value,
            comparative_experiment_id=str(comparison.pk),
        )

    response = page.get(f"{url}/pairwise")
    link = html.unescape(
        re.search(r'class="row-link" href="([^"]+)"', response.content.decode())[1]
    )
    opened = text_of(page.get(link))
    delete_url = f"{url}/pairwise/{comparison.pk}/delete"
    refused = reader.post(delete_url)
    page.post(delete_url)

    assert "duel" in text_of(response)
    assert "preferred 0 : 1 (highest)" in text_of(response)
    assert "preferred 1 +1 better" in opened
    assert refused.status_code == 403
    assert "No pairwise comparisons yet" in text_of(page.get(f"{url}/pairwise"))


def test_comparison_without_experiments_returns_to_the_list(page, url):
    response = page.get(f"{url}/compare")

    assert response["Location"] == url


def test_address_that_the_clients_print_leads_to_the_comparison(page, url, scored, dataset):
    base, other = scored
    link = url.replace("/experiments", "/compare")

    response = page.get(link, {"selectedSessions": f"{base.id},{other.id}"}, follow=True)

    assert response.redirect_chain == [(f"{url}/compare?e={base.id}&e={other.id}", 302)]
    assert "A base baseline" in text_of(response)
