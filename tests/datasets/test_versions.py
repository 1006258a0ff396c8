"""Versions, tags, differences and splits."""

from __future__ import annotations

from uuid import uuid4

import pytest

from apps.audit.models import Entry
from tests.factories.datasets import make_dataset


@pytest.fixture
def path(dataset):
    return f"/datasets/{dataset.pk}"


@pytest.fixture
def add(api, dataset):
    def add(**inputs):
        body = {"dataset_id": str(dataset.pk), "inputs": inputs}
        return api.post("/examples", body).json()

    return add


def test_callers_without_access_are_refused(make_api, workspace, other_workspace, dataset, path):
    outsider, reader = make_api(other_workspace), make_api(workspace, "read")
    at = dataset.latest_version_at.isoformat()
    split = {"split_name": "s", "examples": []}

    for route in ("versions", "version?tag=latest", "splits"):
        assert outsider.get(f"{path}/{route}").status_code == 404
        assert reader.get(f"{path}/{route}").status_code == 200
    assert outsider.put(f"{path}/tags", {"as_of": at, "tag": "t"}).status_code == 404
    assert reader.put(f"{path}/tags", {"as_of": at, "tag": "t"}).status_code == 403
    assert outsider.put(f"{path}/splits", split).status_code == 404
    assert reader.put(f"{path}/splits", split).status_code == 403


def test_every_write_makes_a_version(api, dataset, path, add):
    example = add(n=1)
    api.patch(f"/examples/{example['id']}", {"inputs": {"n": 2}})
    api.put(f"{path}/splits", {"split_name": "test", "examples": [example["id"]]})
    api.delete(f"/examples/{example['id']}")

    versions = api.get(f"{path}/versions").json()

    times = [version["as_of"] for version in versions]
    assert len(times) == 5
    assert times == sorted(times, reverse=True)
    assert [version["tags"] for version in versions] == [["latest"], [], [], [], []]
    assert example["modified_at"] == times[3]
    of_example = api.get(f"{path}/versions", example=example["id"]).json()
    assert [version["as_of"] for version in of_example] == times[:4]
    assert [v["as_of"] for v in api.get(f"{path}/versions", limit=2, offset=1).json()] == times[1:3]


def test_a_tag_moves_and_names_a_version(api, dataset, path, add):
    first, second = add(n=1), add(n=2)

    moved = [
        api.put(f"{path}/tags", {"as_of": e["modified_at"], "tag": "prod"}) for e in (first, second)
    ]
    api.put(f"{path}/tags", {"as_of": first["modified_at"], "tag": "old"})

    assert moved[0].json() == {"as_of": first["modified_at"], "tags": ["prod"]}
    assert moved[1].json() == {"as_of": second["modified_at"], "tags": ["latest", "prod"]}
    by_tag = api.get(f"{path}/version", tag="old").json()
    assert by_tag == {"as_of": first["modified_at"], "tags": ["old"]}
    examples = api.get("/examples", dataset=str(dataset.pk), as_of="old").json()
    assert [example["inputs"] for example in examples] == [{"n": 1}]
    assert api.get(f"/examples/{second['id']}", as_of="old").status_code == 404
    assert api.get(f"/examples/{second['id']}", as_of="prod").status_code == 200
    tagged = api.get(f"{path}/versions", search="PRO").json()
    assert [version["as_of"] for version in tagged] == [second["modified_at"]]
    entry = Entry.objects.filter(action="dataset.tagged").order_by("id")[1]
    assert entry.before["as_of"] == first["modified_at"]


def test_a_tag_needs_the_exact_time_of_a_version(api, path, add):
    example = add(n=1)
    at = example["modified_at"]

    for body, status in (
        ({"as_of": "2026-01-01T00:00:00Z", "tag": "t"}, 404),
        ({"as_of": "x", "tag": "t"}, 422),
        ({"as_of": at, "tag": "latest"}, 422),
        ({"as_of": at, "tag": ""}, 422),
        ({"as_of": at, "tag": "t", "colour": "red"}, 422),
        ({"as_of": at}, 422),
    ):
        assert api.put(f"{path}/tags", body).status_code == status, body
    assert api.get(f"{path}/version", tag="t").status_code == 404


def test_the_version_at_a_time_is_the_newest_until_then(api, path, add):
    first = add(n=1)
    second = add(n=2)

    assert api.get(f"{path}/version", as_of=second["modified_at"]).json() == {
        "as_of": second["modified_at"],
        "tags": ["latest"],
    }
    assert api.get(f"{path}/version", tag="latest").json()["as_of"] == second["modified_at"]
    just_before = second["modified_at"][:-1] + "-00:00"
    assert api.get(f"{path}/version", as_of=just_before).json()["as_of"] == second["modified_at"]
    at_first = api.get(f"{path}/version", as_of=first["modified_at"]).json()
    assert at_first == {"as_of": first["modified_at"], "tags": []}
    missing = api.get(f"{path}/version", as_of="2020-01-01 00:00:00+00:00")
    assert (missing.status_code, missing.json()["code"]) == (404, "dataset_version_not_found")
    assert api.get(f"{path}/version").status_code == 422
    both = api.get(f"{path}/version", as_of=first["modified_at"], tag="latest")
    assert both.status_code == 422


def test_differences_name_added_modified_and_removed_examples(api, path, add):
    start = api.get(f"{path}/version", tag="latest").json()["as_of"]
    kept, changed, removed = add(n=1), add(n=2), add(n=3)
    middle = removed["modified_at"]
    api.put(f"{path}/tags", {"as_of": middle, "tag": "middle"})
    added = add(n=4)
    api.patch(f"/examples/{changed['id']}", {"inputs": {"n": 20}})
    api.delete(f"/examples/{removed['id']}")
    passing = add(n=5)
    api.delete(f"/examples/{passing['id']}")

    def difference(older, newer):
        body = api.get(f"{path}/versions/diff", from_version=older, to_version=newer).json()
        return [body[f"examples_{kind}"] for kind in ("added", "modified", "removed")]

    assert difference("middle", "latest") == [[added["id"]], [changed["id"]], [removed["id"]]]
    assert difference("latest", middle) == [[removed["id"]], [changed["id"]], [added["id"]]]
    assert difference(start, "middle") == [
        sorted([kept["id"], changed["id"], removed["id"]]), [], [],
    ]  # fmt: skip
    assert difference("middle", "middle") == [[], [], []]
    assert (
        api.get(f"{path}/versions/diff", from_version="x", to_version="latest").status_code == 404
    )
    assert api.get(f"{path}/versions/diff", from_version="latest").status_code == 422


def test_splits_are_listed_and_changed(api, workspace, dataset, path, add):
    one, two = add(n=1), add(n=2)
    before = two["modified_at"]

    added = api.put(f"{path}/splits", {"split_name": "test", "examples": [one["id"], two["id"]]})
    assert added.json() == ["base", "test"]
    removed = api.put(
        f"{path}/splits", {"split_name": "base", "examples": [one["id"]], "remove": True}
    )
    assert removed.json() == ["base", "test"]
    assert api.get(f"/examples/{one['id']}").json()["metadata"] == {"dataset_split": ["test"]}
    api.put(f"{path}/splits", {"split_name": "test", "examples": [one["id"]], "remove": True})
    assert api.get(f"/examples/{one['id']}").json()["metadata"] == {"dataset_split": ["base"]}
    assert api.get(f"{path}/splits", as_of=before).json() == ["base"]

    versions = dataset.versions.count()
    unknown = {"split_name": "x", "examples": [one["id"], str(uuid4())]}
    assert api.put(f"{path}/splits", unknown).status_code == 404
    assert dataset.versions.count() == versions
    other = make_dataset(workspace, {"n": 1}, name="other")
    (foreign,) = api.get("/examples", dataset=str(other.pk)).json()
    body = {"split_name": "x", "examples": [foreign["id"]]}
    assert api.put(f"{path}/splits", body).status_code == 404


def test_metadata_of_many_examples_is_changed_in_order(api, dataset, add):
    example, other = add(n=1), add(n=2)
    missing = str(uuid4())
    platform = f"/v1/platform/datasets/{dataset.pk}/examples/metadata"
    versions = dataset.versions.count()

    response = api.patch(
        platform,
        {
            "example_ids": [example["id"], missing],
            "operations": [
                {"key": "dataset_split", "operation": "array_add", "values": ["test", "base"]},
                {"key": "tags", "operation": "ARRAY_ADD", "values": ["a", "b"]},
                {"key": "tags", "operation": "array_remove", "values": ["a"]},
                {"key": "score", "operation": "SET", "value": {"x": 1}},
            ],
        },
    )

    assert response.status_code == 207
    assert [(s["id"], s["status"]) for s in response.json()["statuses"]] == [
        (example["id"], "UPDATED"),
        (missing, "NOT_FOUND"),
    ]
    assert api.get(f"/examples/{example['id']}").json()["metadata"] == {
        "dataset_split": ["base", "test"],
        "tags": ["b"],
        "score": {"x": 1},
    }
    assert api.get(f"/examples/{other['id']}").json() == other | {"attachment_urls": None}
    assert dataset.versions.count() == versions + 1


@pytest.mark.parametrize(
    "body",
    [
        {"example_ids": [], "operations": [{"key": "k", "operation": "SET", "value": 1}]},
        {"example_ids": [str(uuid4())], "operations": []},
        {"example_ids": [str(uuid4())], "operations": [{"key": "k", "operation": "MERGE"}]},
        {"example_ids": [str(uuid4())], "operations": [{"key": "", "operation": "SET"}]},
        {"example_ids": [str(uuid4())]},
    ],
)
def test_invalid_changes_of_metadata_are_refused(api, dataset, body):
    path = f"/v1/platform/datasets/{dataset.pk}/examples/metadata"

    assert api.patch(path, body).status_code == 422
    missing = api.patch(f"/v1/platform/datasets/{uuid4()}/examples/metadata", body)
    # Clients take another 404 for a server that lacks the route.
    assert (missing.status_code, missing.json()["detail"]) == (404, "Dataset not found.")
