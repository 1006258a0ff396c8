"""The pages of evaluators: lists, the form with its trial, the log, the head of experiments."""

from __future__ import annotations

import asyncio
import re
import threading
from datetime import timedelta

import pytest
from django.utils import timezone

from apps.core.http.loop_response import LoopResponse
from apps.datasets.models import ExampleRevision
from apps.evaluators import views
from apps.evaluators.models import (
    CodeTrial,
    Evaluation,
    Evaluator,
    EvaluatorRule,
    RuleBackfill,
)
from apps.evaluators.services import backfills, code_trials, trials
from apps.evaluators.services.code_queue import CodeQueue
from apps.organizations.services.workspaces import set_secrets
from apps.playground.call_worker import CallWorker
from apps.playground.services import completion
from tests.console.conftest import create_workspace_user, signed_in
from tests.evaluators.conftest import add_run, create_rule, evaluate, grade
from tests.factories.evaluators import create_judge_prompt, structured
from tests.providers.fake_provider import Reply
from tests.shared_connection import share_connection

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("keys")]
FORM = {
    "name": "Correctness",
    "repository": "",
    "system": "You grade answers.",
    "prompt": "Grade {{output}} against {{reference}}.",
    "key": "correctness",
    "kind": "boolean",
    "categories": "",
    "description": "Whether it is right.",
    "schema": "",
    "provider": "openai",
    "model": "gpt-4.1-mini",
    "mapping": "output = output.answer\nreference = reference.answer",
    "sampling": "50",
    "filter": 'eq(name, "step")',
    "max_calls_per_day": "100",
    "weekly_limit": "2.5",
}


@pytest.fixture
def base(workspace):
    return f"/o/{workspace.pk}"


@pytest.fixture
def shared_connection(monkeypatch):
    """Let the threads of a stream use the connection of the test, with its transaction."""
    with share_connection(monkeypatch, completion, trials, code_trials, views):
        yield


def read(response) -> str:
    assert response.status_code == 200, response.content
    if isinstance(response, LoopResponse):

        async def collect():
            return b"".join([piece async for piece in response.stream])

        return asyncio.run(collect()).decode()
    return response.content.decode()


def test_empty_lists_offer_templates(page, base, dataset, project):
    content = read(page.get(f"{base}/datasets/{dataset.pk}/evaluators"))
    assert "No evaluators yet" in content
    assert f"/evaluators/new?dataset={dataset.pk.hex}&amp;template=correctness" in content

    content = read(page.get(f"{base}/projects/p/{project.pk}/evaluators"))
    assert f"/evaluators/new?project={project.pk.hex}&amp;template=hallucination" in content


@pytest.mark.parametrize("name", ["correctness", "conciseness", "hallucination"])
def test_template_is_a_judge_once_a_model_is_named(page, base, dataset, name):
    url = f"{base}/evaluators/new?dataset={dataset.pk}&template={name}"
    form = page.get(url).context["form"]
    values = {key: form[key].value() for key in form.fields}
    fields = {key: "" if value is None else value for key, value in values.items()}

    response = page.post(url, fields | {"provider": "openai", "model": "gpt-4.1-mini"})

    rule = EvaluatorRule.unscoped.get()
    assert response.url == f"{base}/evaluators/{rule.pk}"
    assert rule.evaluator.feedback_keys == [name]


def test_one_template_is_current(page, base, dataset):
    def current(query=""):
        text = read(page.get(f"{base}/evaluators/new?dataset={dataset.pk}{query}"))
        tabs = text.partition('aria-label="Templates"')[2].partition("</nav>")[0]
        return re.findall(r'aria-current="page">([^<]+)<', tabs)

    assert current() == current("&template=other") == ["Blank"]
    assert current("&template=correctness") == ["Correctness"]


def test_key_of_a_provider_is_saved_on_the_page_of_the_form(page, base, workspace, dataset):
    url = f"{base}/evaluators/new?dataset={dataset.pk}"
    secrets = f"{base}/settings/secrets"
    values = {"key": "ANTHROPIC_API_KEY", "value": "a-1"}
    htmx = {"HX-Request": "true"}
    assert page.get(url).context["form"].missing_keys == []
    assert "Add the key of a provider" not in read(page.get(url))
    set_secrets(workspace_id=workspace.pk, values={"ANTHROPIC_API_KEY": None})

    text = read(page.get(url))
    viewer = signed_in(create_workspace_user(workspace, "viewer"))
    empty = page.post(secrets, values | {"value": ""}, headers=htmx)
    saved = read(page.post(secrets, values, headers=htmx))

    assert f'hx-post="{secrets}"' in text
    assert "Anthropic (ANTHROPIC_API_KEY)" in text
    assert viewer.post(secrets, values, headers=htmx).status_code == 403
    assert (empty.status_code, "tone-error" in empty.text) == (422, True)
    assert "ANTHROPIC_API_KEY was saved." in saved
    assert "a-1" not in saved
    assert page.get(url).context["form"].missing_keys == []


def test_form_creates_a_rule_and_shows_it_again(page, base, dataset):
    url = f"{base}/evaluators/new?dataset={dataset.pk}"

    page.post(url, FORM)

    rule = EvaluatorRule.unscoped.get()
    assert (rule.sampling_rate, rule.filter) == (0.5, 'eq(name, "step")')
    assert (rule.max_calls_per_day, str(rule.weekly_limit_usd)) == (100, "2.5000")
    assert rule.dataset_id == dataset.pk
    schema = rule.evaluator.setting["response_schema"]
    assert schema["required"] == ["reasoning", "correctness"]
    edit = f"{base}/evaluators/{rule.pk}/edit"
    shown = page.get(edit).context["form"]
    names = ("system", "prompt", "key", "kind", "description", "model", "mapping", "schema")
    assert {name: shown[name].value() or "" for name in names} == {
        name: FORM[name] for name in names
    }

    changed = FORM | {"name": "Tone", "kind": "category", "categories": "kind, rude"}
    response = page.post(edit, changed)

    assert response.url == f"{base}/evaluators/{rule.pk}"
    rule.refresh_from_db()
    schema = rule.evaluator.setting["response_schema"]
    assert schema["properties"]["correctness"]["enum"] == ["kind", "rude"]
    assert rule.name == "Tone"


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"model": ""}, "Name the model."),
        ({"key": ""}, "Name the score."),
        ({"prompt": "", "system": ""}, "Write a message"),
        ({"kind": "category"}, "at least one category"),
        ({"mapping": "output"}, 'is not <code class="inline">variable = path</code>'),
        ({"mapping": "output = answer"}, "must begin with"),
        ({"filter": "eq("}, "field-error"),
        ({"schema": "{"}, "This is not JSON."),
        ({"sampling": "101"}, "field-error"),
        ({"weekly_limit": "0"}, "greater than or equal to 0.0001"),
    ],
)
def test_form_names_what_is_wrong(page, base, dataset, changes, text):
    response = page.post(f"{base}/evaluators/new?dataset={dataset.pk}", FORM | changes)

    assert response.status_code == 422
    assert text in response.content.decode()
    assert not Evaluator.unscoped.exists()


def test_prompt_of_the_workspace_needs_no_messages(page, base, workspace, project):
    create_judge_prompt(workspace, text="Is {output} kind?")
    fields = dict.fromkeys(FORM, "") | {
        "name": "Kind", "repository": "grader", "kind": "boolean", "provider": "openai",
        "sampling": "100", "max_calls_per_day": "10",
    }  # fmt: skip

    response = page.post(f"{base}/evaluators/new?project={project.pk}", fields)

    rule = EvaluatorRule.unscoped.get()
    assert response.url == f"{base}/evaluators/{rule.pk}"
    assert (rule.project_id, rule.evaluator.prompt.handle) == (project.pk, "grader")
    assert "grader:latest" in read(page.get(response.url))


def test_judge_that_the_form_cannot_show_keeps_it(page, base, api, dataset):
    model = {"provider": "openai", "model": "gpt-4.1-mini", "temperature": 0.5}
    judge = structured("Is {output} right?", model=model)
    rule = create_rule(api, dataset_id=str(dataset.pk), evaluators=[{"structured": judge}])
    edit = f"{base}/evaluators/{rule['id']}/edit"
    assert "Change it through the API" in read(page.get(edit))

    page.post(edit, FORM | {"name": "Right", "prompt": "Other"})

    row = EvaluatorRule.unscoped.get()
    assert row.name == "Right"
    assert row.evaluator.setting["messages"][1]["content"] == "Is {output} right?"
    assert row.evaluator.setting["model"]["temperature"] == 0.5


@pytest.mark.usefixtures("shared_connection")
def test_judge_is_tried_on_an_example_or_on_a_run(page, base, dataset, experiment, provider):
    url = f"{base}/evaluators/try?dataset={dataset.pk}"
    provider.answer = Reply('{"reasoning": "It <fits>.", "correctness": true}')

    content = read(page.post(url, FORM))

    assert "It &lt;fits&gt;." in content
    assert "Asked about an example" in content
    run_id = add_run(
        experiment.workspace,
        experiment,
        reference_example_id=str(ExampleRevision.unscoped.first().example_id),
        outputs={"answer": "Mine"},
    )
    assert "Asked about the run step" in read(page.post(url, FORM))
    read(page.post(url, FORM | {"run": str(run_id)}))
    sent = [body["messages"][-1]["content"] for body in provider.bodies]
    assert sent[0].startswith("Grade Answer ")
    assert [text.startswith("Grade Mine against Answer ") for text in sent[1:]] == [True, True]
    assert not Evaluator.unscoped.exists()


@pytest.mark.usefixtures("shared_connection")
def test_trial_shows_what_is_wrong(page, base, dataset, project, provider):
    url = f"{base}/evaluators/try?dataset={dataset.pk}"
    assert "Name the model." in read(page.post(url, FORM | {"model": ""}))
    assert "is not an id" in read(page.post(url, FORM | {"run": "7"}))
    assert "no such run" in read(page.post(url, FORM | {"run": str(dataset.pk)}))
    online = f"{base}/evaluators/try?project={project.pk}"
    assert "no finished trace" in read(page.post(online, FORM))
    provider.answer = Reply(status=400, error="No such model.")
    assert "No such model." in read(page.post(url, FORM))
    provider.answer = Reply("Yes.")
    assert "not JSON" in read(page.post(url, FORM))


@pytest.fixture
def failed(api, dataset, experiment, provider):
    """A rule with a scored and a failed row."""
    judge = structured("Is {output} right?")
    rule = create_rule(api, dataset_id=str(dataset.pk), evaluators=[{"structured": judge}])
    answers = iter([Reply(grade()), Reply(status=400, error="No such model.")])
    provider.answer = lambda _: next(answers)
    for row in ExampleRevision.unscoped.filter(dataset=dataset):
        add_run(experiment.workspace, experiment, reference_example_id=str(row.example_id))
    evaluate()
    return rule


def test_log_shows_scores_and_failures_which_are_retried(page, base, failed, dataset, provider):
    url = f"{base}/evaluators/{failed['id']}"

    content = read(page.get(url))

    for text in ("It is right.", "No such model.", "1 evaluation failed", "2 calls"):
        assert text in content
    assert "It is right." not in read(page.get(f"{url}?status=failed"))
    assert "1 failed" in read(page.get(f"{base}/datasets/{dataset.pk}/evaluators"))
    page.post(f"{url}/change", {"action": "retry"})
    provider.answer = Reply(grade())
    assert evaluate() == 1
    assert "evaluation failed" not in read(page.get(url))


def test_failures_stand_in_the_head_of_the_experiment(page, base, failed, dataset, experiment):
    compare = f"{base}/datasets/{dataset.pk}/experiments/compare?e={experiment.pk}"
    head = f"{base}/datasets/{dataset.pk}/experiments/evaluations?e={experiment.pk}&"
    pattern = re.escape(head.replace("&", "&amp;"))
    assert re.search(pattern, read(page.get(compare)))

    assert "Correctness: 1 failed" in read(page.get(head))
    content = read(page.post(head, headers={"hx-request": "true"}))

    assert "1 waiting" in content
    assert page.post(head).url == compare
    assert set(Evaluation.unscoped.values_list("status", flat=True)) == {"succeeded", "pending"}


def test_rule_is_disabled_enabled_and_deleted(page, base, failed, dataset):
    url = f"{base}/evaluators/{failed['id']}"

    page.post(f"{url}/change", {"action": "disable"})
    assert "Disabled" in read(page.get(url))
    page.post(f"{url}/change", {"action": "enable"})
    assert EvaluatorRule.unscoped.get().is_enabled
    response = page.post(f"{url}/change", {"action": "delete"})

    assert response.url == f"{base}/datasets/{dataset.pk}/evaluators"
    assert not EvaluatorRule.unscoped.exists()


def test_reader_sees_the_log_but_no_forms(workspace, base, failed, dataset):
    viewer = signed_in(create_workspace_user(workspace, "viewer"))
    url = f"{base}/evaluators/{failed['id']}"

    assert "Retry" not in read(viewer.get(url))
    assert "New evaluator" not in read(viewer.get(f"{base}/datasets/{dataset.pk}/evaluators"))
    for path in (f"{url}/edit", f"{base}/evaluators/new?dataset={dataset.pk}"):
        assert viewer.get(path).status_code == 403
    assert viewer.post(f"{url}/change", {"action": "delete"}).status_code == 403


CODE = """\
def perform_eval(run, example):
    print("seen", sorted(run["outputs"]))
    return {"length": len(run["outputs"]["answer"])}
"""
CODE_FORM = {
    "name": "Length",
    "code": CODE,
    "sampling": "100",
    "filter": "",
    "max_calls_per_day": "7",
}


def test_form_creates_a_function_and_shows_it_again(page, base, dataset):
    url = f"{base}/evaluators/new?dataset={dataset.pk}&template=code"
    assert "def perform_eval(run, example):" in read(page.get(url))

    page.post(url, CODE_FORM | {"code": CODE.replace("\n", "\r\n")})

    rule = EvaluatorRule.unscoped.get()
    assert (rule.evaluator.code, rule.evaluator.feedback_keys) == (CODE, ["length"])
    assert (rule.max_calls_per_day, rule.weekly_limit_usd) == (7, None)
    edit = f"{base}/evaluators/{rule.pk}/edit"
    assert page.get(edit).context["form"]["code"].value() == CODE
    response = page.post(edit, CODE_FORM | {"code": CODE.replace("length", "size")})
    assert response.url == f"{base}/evaluators/{rule.pk}"
    content = read(page.get(response.url))
    assert "Python function" in content
    assert "size" in content


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"code": ""}, "This field is required"),
        ({"code": "x = 1"}, "must define"),
        ({"code": "def perform_eval(run):\n  x ="}, "line 2"),
        ({"name": ""}, "This field is required"),
        ({"filter": "eq("}, "field-error"),
    ],
)
def test_form_of_a_function_names_what_is_wrong(page, base, dataset, changes, text):
    url = f"{base}/evaluators/new?dataset={dataset.pk}&template=code"

    response = page.post(url, CODE_FORM | changes)

    assert response.status_code == 422
    assert text in response.content.decode()
    assert not Evaluator.unscoped.exists()


@pytest.fixture
def live_worker():
    """Run waiting trials in a thread, as a worker does."""
    worker = CallWorker(CodeQueue(), "test-functions", 2)
    stopped = threading.Event()

    def wake():
        while not stopped.wait(0.1):
            worker.wake()

    thread = threading.Thread(target=wake)
    thread.start()
    yield
    stopped.set()
    thread.join()
    worker.stop()


@pytest.mark.integration
@pytest.mark.django_db(transaction=True)
def test_trial_runs_the_function_and_saves_nothing(page, base, dataset, live_worker):
    url = f"{base}/evaluators/try?dataset={dataset.pk}"

    content = read(page.post(url, CODE_FORM))

    assert "Scored an example" in content
    assert "length" in content
    assert "8.0" in content
    assert "seen [&#x27;answer&#x27;]" in content
    failing = CODE.replace('["answer"]', '["nothing"]')
    content = read(page.post(url, CODE_FORM | {"code": failing}))
    assert "KeyError" in content
    assert "line 3, in perform_eval" in content
    assert not Evaluator.unscoped.exists()
    assert not CodeTrial.unscoped.exists()


def test_trial_of_a_function_shows_what_is_wrong(page, base, dataset, project):
    url = f"{base}/evaluators/try?dataset={dataset.pk}"
    assert "must define" in read(page.post(url, CODE_FORM | {"code": "x = 1"}))
    assert "no such run" in read(page.post(url, CODE_FORM | {"run": str(dataset.pk)}))
    online = f"{base}/evaluators/try?project={project.pk}"
    assert "no finished trace" in read(page.post(online, CODE_FORM))
    assert not CodeTrial.unscoped.exists()
    for _ in range(5):
        page.post(url, CODE_FORM)
    assert "At most 5 functions are tried" in read(page.post(url, CODE_FORM))


def test_log_of_a_function_shows_tracebacks(page, base, api, dataset, experiment):
    functions = [{"code": CODE, "language": "python"}]
    rule = create_rule(api, dataset_id=str(dataset.pk), code_evaluators=functions)
    run_id = add_run(experiment.workspace, experiment)
    error = "Traceback (most recent call last):\n  File \"evaluator.py\", line 3\nKeyError: 'x'"
    Evaluation.unscoped.filter(run_id=run_id).update(status="failed", error=error)

    content = read(page.get(f"{base}/evaluators/{rule['id']}"))

    assert "<summary>Traceback" in content
    assert "File &quot;evaluator.py&quot;, line 3" in content


def test_earlier_runs_are_scored_from_the_page(page, base, api, project):
    run_id = add_run(project.workspace, project)
    functions = [{"code": CODE, "language": "python"}]
    rule = create_rule(api, session_id=str(project.pk), code_evaluators=functions)
    url = f"{base}/evaluators/{rule['id']}"
    assert "Earlier runs" in read(page.get(url))

    day = (timezone.now() - timedelta(days=1)).date().isoformat()
    page.post(f"{url}/change", {"action": "backfill", "from": day})
    content = read(page.get(url))
    assert "The rule is applied to earlier runs" in content
    assert 'value="cancel-backfill"' in content
    backfills.advance()
    assert Evaluation.unscoped.get().run_id == run_id
    assert "100" in read(page.get(url))
    page.post(f"{url}/change", {"action": "cancel-backfill"})
    assert "no longer applied to earlier runs" in read(page.get(url))
    assert not Evaluation.unscoped.exists()
    for day in ("", "2999-01-01", "0001-01-01", "x\0"):
        page.post(f"{url}/change", {"action": "backfill", "from": day})
        assert RuleBackfill.unscoped.count() == 1
