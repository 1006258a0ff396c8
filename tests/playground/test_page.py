"""The page of the playground: who opens it, and what it opens with."""

from __future__ import annotations

import json
import re

import pytest

from apps.playground.models import Draft, PlaygroundShare
from tests.console.conftest import create_workspace_user, signed_in
from tests.factories.datasets import make_dataset
from tests.factories.organizations import WorkspaceFactory
from tests.factories.prompts import create_commit, create_prompt
from tests.factories.tracing import ingest, wire_run
from tests.playground.conftest import setting
from tests.providers.conftest import KEY

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("keys")]


def read_config(response):
    content = response.content.decode()
    [text] = re.findall(r'<script id="play-config" type="application/json">(.*?)</script>', content)
    return json.loads(text)


def test_anonymous_visitor_is_sent_to_the_sign_in(client, base):
    response = client.get(base)

    assert response.status_code == 302
    assert response["Location"].startswith("/sign-in")


def test_page_of_another_workspace_is_not_found(page):
    other = WorkspaceFactory()
    dataset = make_dataset(other)

    assert page.get(f"/o/{other.pk}/playground").status_code == 404
    assert page.get(f"/o/{other.pk}/playground/datasets/{dataset.pk}").status_code == 404


def test_member_who_only_reads_sees_the_prompts_and_cannot_run_them(workspace, base):
    create_prompt(workspace, "support")
    viewer = signed_in(create_workspace_user(workspace, "viewer"))

    response = viewer.get(base)

    assert response.status_code == 200
    assert "Your role reads prompts but does not run them." in response.content.decode()
    assert read_config(response)["prompts"] == []
    assert 'id="play-commit"' not in response.content.decode()
    assert "data-share>" not in response.content.decode()


def test_page_has_no_key_and_one_empty_column_without_a_draft(page, base):
    response = page.get(base)

    assert KEY not in response.content.decode()
    config = read_config(response)
    [column] = config["state"]["columns"]
    assert column["setting"]["model"]["provider"] == "openai"
    assert [message["role"] for message in column["setting"]["messages"]] == ["system", "human"]
    assert config["urls"]["job"].endswith("/playground/experiments/JOB")
    assert config["urls"]["dataset"].endswith("/playground/datasets/DATASET")


def test_draft_is_in_the_page_and_kept_by_what_opens_filled_in(page, workspace, base):
    run = wire_run(
        None,
        run_type="llm",
        inputs={"messages": [{"role": "user", "content": "How long?"}]},
        outputs={"choices": [{"message": {"role": "assistant", "content": "A week."}}]},
    )
    ingest(workspace, run)
    page.put(
        f"{base}/draft",
        json.dumps({"columns": [{"letter": "A", "setting": setting(name="Mine")}]}),
        content_type="application/json",
    )

    draft, filled = page.get(base), page.get(f"{base}?run={run['id']}")

    assert read_config(draft)["state"]["columns"][0]["setting"]["name"] == "Mine"
    assert "{question}</textarea>" in draft.content.decode()
    assert "The first change here replaces your draft." in filled.content.decode()
    assert read_config(filled)["recorded"][0]["message"]["content"] == "A week."
    assert "How long?</textarea>" in filled.content.decode()
    assert Draft.objects.for_workspace(workspace).get().state["columns"][0]["setting"]["name"] == (
        "Mine"
    )


def test_shared_setting_is_read_only(page, workspace, base):
    share = PlaygroundShare(
        workspace=workspace,
        title="Two tones",
        state={"columns": [{"letter": "A", "setting": setting()}]},
    )
    share.save()

    response = page.get(f"{base}?share={share.pk}")

    assert read_config(response)["is_read_only"] is True
    assert "Two tones" in response.content.decode()


@pytest.mark.parametrize(
    "query",
    [
        "run=none",
        "run=00000000-0000-0000-0000-000000000001",
        "prompt=none",
        "prompt=support&commit=none",
        "example=00000000-0000-0000-0000-000000000001",
        "share=00000000-0000-0000-0000-000000000001",
        "share=%00",
    ],
)
def test_missing_run_prompt_example_or_link_is_not_found(page, workspace, base, query):
    create_commit(create_prompt(workspace, "support"))

    assert page.get(f"{base}?{query}").status_code == 404


def test_dataset_has_its_versions_splits_and_fields(page, workspace, base):
    dataset = make_dataset(workspace, {"question": "How?", "tone": "calm"}, {"question": "Why?"})

    response = page.get(f"{base}/datasets/{dataset.pk}")

    assert response.json() == {
        "name": "dataset",
        "examples": 2,
        "versions": [],
        "splits": ["base"],
        "fields": ["question", "tone"],
        "evaluators": [],
    }


def test_model_call_links_to_the_playground(page, workspace):
    model_call = wire_run(None, run_type="llm")
    chain = wire_run(None, run_type="chain")
    ingest(workspace, model_call, chain)
    address = f"/o/{workspace.pk}/playground?run={model_call['id']}"

    def open_run(run):
        return page.get(f"/o/{workspace.pk}/r/{run['id']}", follow=True).content.decode()

    assert address in open_run(model_call)
    assert "playground?run=" not in open_run(chain)
