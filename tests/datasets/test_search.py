"""The few-shot index: examples with similar inputs."""

from __future__ import annotations

from base64 import b64encode

import pytest

from apps.datasets.models import IndexedExample
from apps.datasets.services.search import sync_all
from apps.datasets.services.text_vectors import embed, text_of
from tests.factories.datasets import make_dataset

QUESTIONS = (
    "How do I reset my password?",
    "Where is my invoice for March?",
    "Can I change the billing address?",
    "My parcel has not arrived yet",
)


@pytest.fixture
def questions(workspace):
    return make_dataset(workspace, *({"question": text} for text in QUESTIONS))


@pytest.fixture
def path(questions):
    return f"/datasets/{questions.pk}"


def search(api, path, text, **fields):
    response = api.post(f"{path}/search", {"inputs": {"q": text}, **fields})
    assert response.status_code == 200, response.content
    return [example["inputs"]["question"] for example in response.json()["examples"]]


def test_callers_without_access_are_refused(make_api, workspace, other_workspace, path):
    outsider, reader = make_api(other_workspace), make_api(workspace, "read")
    for api, statuses in ((outsider, [404] * 5), (reader, [409, 403, 403, 403, 409])):
        responses = [
            api.get(f"{path}/index"),
            api.post(f"{path}/index", {}),
            api.delete(f"{path}/index"),
            api.post(f"{path}/index/sync", {}),
            api.post(f"{path}/search", {"inputs": {}}),
        ]
        assert [response.status_code for response in responses] == statuses
    assert not IndexedExample.objects.for_workspace(workspace).exists()


def test_the_most_similar_inputs_come_first(api, path, questions):
    index = api.post(f"{path}/index", {"tag": "latest"}).json()

    assert index == {
        "dataset_id": str(questions.pk),
        "tag": "latest",
        "last_updated_version": questions.latest_version_at.isoformat().replace("+00:00", "Z"),
        "method": "lexical-v1",
    }
    assert api.get(f"{path}/index").json() == index
    assert search(api, path, "I want to reset passwords", limit=1) == [QUESTIONS[0]]
    assert search(api, path, "invoices of march")[0] == QUESTIONS[1]
    assert search(api, path, "has the parcel arrived?", limit=2)[0] == QUESTIONS[3]
    assert len(search(api, path, "x")) == 4
    body = {"inputs": {"q": QUESTIONS[2]}, "limit": 1, "debug": True}
    (example,) = api.post(f"{path}/search", body).json()["examples"]
    assert set(example) == {"id", "dataset_id", "inputs", "outputs", "metadata", "debug_info"}
    assert example["debug_info"]["method"] == "lexical-v1"
    assert example["debug_info"]["similarity"] == pytest.approx(1, abs=1e-4)


def test_a_filter_restricts_the_search(api, path):
    api.post(f"{path}/index", {})
    (first, *_) = api.get("/examples", dataset=path.rsplit("/", 1)[1]).json()
    api.patch(f"/examples/{first['id']}", {"metadata": {"topic": "account"}})
    api.post(f"{path}/index/sync", {})

    matches = search(api, path, "invoice", filter='eq(metadata_key, "topic")')

    assert matches == [QUESTIONS[0]]
    invalid = api.post(f"{path}/search", {"inputs": {}, "filter": "eq("})
    assert (invalid.status_code, invalid.json()["code"]) == (400, "filter_invalid")


def test_the_index_follows_the_latest_version(api, path, questions):
    api.post(f"{path}/index", {})
    added = {"dataset_id": str(questions.pk), "inputs": {"question": "A brand-new kangaroo"}}
    kangaroo = api.post("/examples", added).json()
    changed = api.get("/examples", dataset=str(questions.pk)).json()[1]
    api.patch(f"/examples/{changed['id']}", {"inputs": {"question": "zebra crossing"}})

    assert "kangaroo" not in search(api, path, "kangaroo", limit=1)[0]
    assert sync_all() == 1
    assert sync_all() == 0
    assert search(api, path, "kangaroo", limit=1) == ["A brand-new kangaroo"]
    assert search(api, path, "zebra", limit=1) == ["zebra crossing"]
    api.delete(f"/examples/{kangaroo['id']}")
    assert "kangaroo" not in search(api, path, "kangaroo", limit=1)[0] or sync_all() == 1
    sync_all()
    assert len(search(api, path, "kangaroo")) == 4


def test_the_index_follows_a_tag(api, path, questions, workspace):
    at = questions.latest_version_at.isoformat()
    assert api.post(f"{path}/index", {"tag": "prod"}).status_code == 404
    api.put(f"{path}/tags", {"as_of": at, "tag": "prod"})
    api.post(f"{path}/index", {"tag": "prod"})
    added = {"dataset_id": str(questions.pk), "inputs": {"question": "A brand-new kangaroo"}}
    kangaroo = api.post("/examples", added).json()

    assert sync_all() == 0
    assert "kangaroo" not in search(api, path, "kangaroo", limit=1)[0]
    api.put(f"{path}/tags", {"as_of": kangaroo["modified_at"], "tag": "prod"})
    assert sync_all() == 1
    assert search(api, path, "kangaroo", limit=1) == ["A brand-new kangaroo"]

    assert api.delete(f"{path}/index").status_code == 204
    assert api.delete(f"{path}/index").status_code == 204
    assert not IndexedExample.objects.for_workspace(workspace).exists()
    missing = api.post(f"{path}/search", {"inputs": {}})
    assert (missing.status_code, missing.json()["code"]) == (409, "dataset_not_indexed")


def test_a_dataset_with_too_many_examples_is_refused(api, path, monkeypatch):
    monkeypatch.setattr("apps.datasets.services.search.MAX_INDEXED", 3)

    response = api.post(f"{path}/index", {})

    assert (response.status_code, response.json()["code"]) == (422, "dataset_too_large_to_index")
    assert sync_all() == 0


@pytest.mark.parametrize(
    "body", [{}, {"inputs": 1}, {"inputs": {}, "limit": 0}, {"inputs": {}, "colour": "red"}]
)
def test_an_invalid_search_is_refused(api, path, body):
    api.post(f"{path}/index", {})

    assert api.post(f"{path}/search", body).status_code == 422


def test_texts_are_the_values_without_keys():
    assert text_of({"a": ["x", {"b": 1.5}], "c": None, "d": True}) == "x 1.5"


def test_texts_have_no_base64_of_files():
    image = b64encode(bytes(range(256)) * 80).decode()

    value = [{"image": image}, {"url": f"data:image/png;base64,{image}"}, "why?"]

    assert text_of(value).split() == ["data:image/png;base64,", "why?"]


def test_a_vector_has_length_one_or_zero():
    assert sum(item * item for item in embed("words and words")) == pytest.approx(1)
    assert embed("!?") == [0.0] * 256
