"""The price map, and what model calls cost by it."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.test import Client
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from apps.ingest import decoders
from apps.ingest.services import ingest_runs
from apps.organizations.models import Workspace
from apps.trace_store import ChangedRun
from apps.trace_store.postgres.postprocess import missing_costs as price_settling
from apps.trace_store.pricing import costs, entries, price_map
from apps.tracing.models import ModelPrice
from tests.factories.tracing import begun, ended, ingest, read, wire_run
from tests.tracing.conftest import Api

PATH = "/model-price-map"
Commit = Callable[..., Any]


def body(**fields: Any) -> dict[str, Any]:
    return {
        "name": "mine",
        "match_pattern": "^my-model",
        "prompt_cost": "0.000001",
        "completion_cost": "0.000002",
    } | fields


def usage(prompt: int, completion: int, **details: Any) -> dict[str, Any]:
    return {"input_tokens": prompt, "output_tokens": completion, **details}


def call(model: str, told: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """A model's call as clients post it."""
    metadata = {"ls_model_name": model, **fields.pop("metadata", {})}
    return wire_run(
        run_type="llm",
        outputs={"usage_metadata": told},
        extra={"metadata": metadata},
        **fields,
    )


def priced(workspace: Workspace, run: dict[str, Any]) -> Any:
    ingest(workspace, run)
    return read(workspace, run["id"]).row


@pytest.fixture
def own(workspace: Workspace) -> Callable[..., ModelPrice]:
    """An entry of the workspace's own."""

    def make(**fields: Any) -> ModelPrice:
        given = body(**fields)
        costs_of = {name: Decimal(given.pop(name)) for name in ("prompt_cost", "completion_cost")}
        price = ModelPrice(workspace=workspace, **given, **costs_of)
        price.save()
        price_map.invalidate(workspace.pk)
        return price

    return make


def test_without_a_key(db: None) -> None:
    assert Client().get(PATH).status_code == 401


def test_who_may_ingest_may_not_set_prices(
    api_of: Callable[..., Api], workspace: Workspace
) -> None:
    assert api_of(workspace, "ingest").get(PATH).status_code == 403
    assert api_of(workspace, "read").get(PATH).status_code == 200
    assert api_of(workspace, "write").post(PATH, body()).status_code == 403
    assert not ModelPrice.unscoped.exists()


def test_an_entry_is_made_changed_and_deleted(
    api: Api, workspace: Workspace, django_capture_on_commit_callbacks: Commit
) -> None:
    details = {"cache_read": 1e-7, "audio": "0.00004"}
    made = api.post(PATH, body(prompt_cost=1e-6, prompt_cost_details=details)).json()
    listed = api.get(PATH).json()

    assert made == {
        "id": made["id"],
        "name": "mine",
        "match_pattern": "^my-model",
        "match_path": ["model", "model_name", "model_id", "model_path", "endpoint_name"],
        "provider": None,
        "start_time": None,
        "prompt_cost": "0.000001",
        "completion_cost": "0.000002",
        "prompt_cost_details": {"cache_read": "0.0000001", "audio": "0.00004"},
        "completion_cost_details": {},
        "tenant_id": str(workspace.pk),
    }
    assert listed[0] == made
    assert len(listed) == 1 + len(entries.built_in_entries())
    assert {one["tenant_id"] for one in listed[1:]} == {None}

    with django_capture_on_commit_callbacks(execute=True):
        changed = api.client.put(
            f"{PATH}/{made['id']}", body(prompt_cost="0.5"), content_type="application/json"
        )
    assert changed.json()["prompt_cost"] == "0.5"
    assert changed.json()["prompt_cost_details"] == {}
    assert api.delete(f"{PATH}/{made['id']}").status_code == 200
    assert api.delete(f"{PATH}/{made['id']}").status_code == 404


def test_a_page_of_the_map(api: Api) -> None:
    answer = api.get(PATH, limit=2, offset=1)

    assert [one["id"] for one in answer.json()] == [
        str(one.id) for one in entries.built_in_entries()[1:3]
    ]
    assert answer["X-Pagination-Total"] == str(len(entries.built_in_entries()))


def test_anothers_entry_and_a_built_in_one(api: Api, stranger: Workspace) -> None:
    foreign = ModelPrice(
        workspace=stranger, name="f", match_pattern="f", prompt_cost=1, completion_cost=1
    )
    foreign.save()
    built_in = entries.built_in_entries()[0].id

    assert api.delete(f"{PATH}/{foreign.pk}").status_code == 404
    assert api.delete(f"{PATH}/{built_in}").json()["code"] == "price_built_in"
    assert ModelPrice.unscoped.count() == 1


@pytest.mark.parametrize(
    "fields",
    [
        {"match_pattern": "("},
        {"match_pattern": "(?=look)"},
        {"match_pattern": "a{9999}{9999}"},
        {"prompt_cost": -1},
        {"prompt_cost": "NaN"},
        {"prompt_cost": None},
        {"prompt_cost_details": {"a": "x"}},
        {"match_path": ["elsewhere"]},
        {"name": ""},
        {"start_time": "yesterday"},
    ],
)
def test_what_is_no_price(api: Api, fields: dict[str, Any]) -> None:
    assert api.post(PATH, body(**fields)).status_code == 422
    assert not ModelPrice.unscoped.exists()


def test_a_pattern_cannot_be_made_slow() -> None:
    assert entries.compile_pattern("(a+)+$").search("a" * 500 + "!") is None


def test_costs_are_exact(workspace: Workspace, own: Callable[..., ModelPrice]) -> None:
    entry = own(prompt_cost="0.000000000000000001", completion_cost="0.1")

    row = priced(workspace, call("my-model-7", usage(3, 2)))

    assert (row.usage.prompt_cost, row.usage.completion_cost, row.usage.total_cost) == (
        Decimal("0.000000000000000003"),
        Decimal("0.2"),
        Decimal("0.200000000000000003"),
    )
    assert row.price_model_id == entry.pk


def test_kinds_of_tokens_with_a_price_first_then_the_rest(
    workspace: Workspace, own: Callable[..., ModelPrice]
) -> None:
    own(
        prompt_cost_details={"cache_read": "0.0000001", "cache_creation": "0.000004"},
        completion_cost_details={"reasoning": "0.00001"},
    )
    told = usage(
        100,
        50,
        input_token_details={"cache_read": 60, "cache_creation": 10, "audio": 5},
        output_token_details={"reasoning": 20},
    )

    row = priced(workspace, call("my-model", told))

    # 60 + 10 by their own prices, 30 (the audio among them) by the base price.
    assert row.usage.prompt_cost == Decimal("0.000076")
    assert row.usage.completion_cost == Decimal("0.00026")
    assert row.usage.details["prompt_cost_details"] == {
        "cache_read": "0.0000060",
        "cache_creation": "0.000040",
    }


def test_a_cost_that_the_client_tells_stands(
    workspace: Workspace, own: Callable[..., ModelPrice]
) -> None:
    own()

    row = priced(workspace, call("my-model", usage(1, 1, total_cost=7)))

    assert row.usage.total_cost == Decimal(7)
    assert row.usage.prompt_cost is None
    assert row.price_model_id is None


def test_the_newest_entry_in_force_when_the_run_started(
    workspace: Workspace, own: Callable[..., ModelPrice]
) -> None:
    now = datetime.now(UTC)
    own(prompt_cost="1", start_time=now - timedelta(hours=2))
    own(prompt_cost="2", start_time=now - timedelta(hours=1))
    own(prompt_cost="3", start_time=now + timedelta(hours=1))
    own(prompt_cost="4")

    found = [
        priced(workspace, call("my-model", usage(1, 0), start=now - timedelta(minutes=ago)))
        for ago in (1, 90, 180)
    ]

    assert [row.usage.prompt_cost for row in found] == [Decimal(2), Decimal(1), Decimal(4)]


def test_own_entries_go_before_built_in_ones(
    workspace: Workspace, stranger: Workspace, own: Callable[..., ModelPrice]
) -> None:
    own(match_pattern="^gpt-4o$", prompt_cost="1", completion_cost="1")

    assert priced(workspace, call("gpt-4o", usage(1, 1))).usage.total_cost == 2
    assert priced(stranger, call("gpt-4o", usage(1, 1))).usage.total_cost == Decimal("0.0000125")


def test_a_provider_must_be_the_same_where_both_are_told(
    workspace: Workspace, own: Callable[..., ModelPrice]
) -> None:
    own(provider="azure", prompt_cost="5")
    own(provider=None, prompt_cost="1")

    found = [
        priced(workspace, call("my-model", usage(1, 0), metadata=metadata)).usage.prompt_cost
        for metadata in ({"ls_provider": "azure"}, {"ls_provider": "other"}, {})
    ]

    assert found == [5, 1, 1]


def test_a_name_under_the_path_of_the_entry(
    workspace: Workspace, own: Callable[..., ModelPrice]
) -> None:
    own(match_path=["endpoint_name"])
    parameters = {"invocation_params": {"endpoint_name": "my-model", "model": "x"}}

    by_endpoint = wire_run(
        run_type="llm", outputs={"usage_metadata": usage(1, 0)}, extra=parameters
    )
    by_model = wire_run(
        run_type="llm",
        outputs={"usage_metadata": usage(1, 0)},
        extra={"invocation_params": {"model": "my-model"}},
    )

    assert priced(workspace, by_endpoint).usage.prompt_cost == Decimal("0.000001")
    assert priced(workspace, by_model).usage.prompt_cost is None


def test_runs_that_are_stored_keep_their_costs(
    workspace: Workspace, own: Callable[..., ModelPrice]
) -> None:
    run = call("my-model", usage(1, 0))
    before = priced(workspace, run).usage
    own()

    assert before.total_cost is None
    assert read(workspace, run["id"]).row.usage.total_cost is None


def test_tokens_and_model_that_come_in_different_requests(
    workspace: Workspace, own: Callable[..., ModelPrice]
) -> None:
    own()
    run = call("my-model", usage(10, 0))
    ingest(workspace, begun(run))
    body_of_update = {"patch": [ended(run)]}
    ingest_runs.ingest(workspace.pk, decoders.decode_batch(json.dumps(body_of_update).encode()))
    row = read(workspace, run["id"]).row
    touched = ChangedRun(row.id, row.project_id, row.partition_time, row.trace_id)
    price_settling.add_missing_costs(workspace.pk, [touched])
    price_settling.add_missing_costs(workspace.pk, [touched])

    settled = read(workspace, run["id"]).row
    assert row.usage.total_cost is None
    assert settled.usage.total_cost == Decimal("0.00001")
    assert settled.price_model_id is not None


def test_anothers_change_is_seen_within_seconds(
    workspace: Workspace, own: Callable[..., ModelPrice], monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = own()
    names = {"model": "my-model"}
    assert price_map.find_entry(workspace.pk, names, None, None) is not None

    entry.delete()
    kept = price_map.find_entry(workspace.pk, names, None, None)
    monkeypatch.setattr(price_map, "CACHE_SECONDS", 0)
    found = price_map.find_entry(workspace.pk, names, None, None)

    assert kept is not None
    assert found is None


@pytest.mark.parametrize(
    ("model", "provider", "name"),
    [
        ("gpt-4o-mini-2024-07-18", "openai", "gpt-4o-mini"),
        ("claude-sonnet-4-5-20250929", "anthropic", "claude-sonnet-4-5"),
        ("models/gemini-2.5-flash", "google_genai", "gemini-2.5-flash"),
        ("amazon.nova-pro-v1:0", "bedrock_converse", "amazon.nova-pro-v1:0"),
        ("llama-3.3-70b-versatile", "groq", "llama-3.3-70b-versatile"),
        ("mistral-large-latest", "mistralai", "mistral-large"),
        ("grok-4-0709", "xai", "grok-4-0709"),
        ("deepseek-chat", "deepseek", "deepseek-chat"),
        ("command-r-plus", "cohere", "command-r-plus"),
        ("a model of nobody", None, None),
    ],
)
def test_models_that_are_known(
    workspace: Workspace, model: str, provider: str | None, name: str | None
) -> None:
    found = price_map.find_entry(workspace.pk, {"ls_model_name": model}, provider, None)

    assert (found and found.name) == name


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    tokens=st.integers(0, 10**9),
    kinds=st.dictionaries(st.sampled_from(["cache_read", "audio", "other"]), st.integers(0, 10**9)),
)
def test_a_side_costs_what_its_parts_cost(tokens: int, kinds: dict[str, int]) -> None:
    prices = {"cache_read": Decimal("0.1"), "audio": Decimal("0.3")}
    apart = sum(kinds.get(kind, 0) for kind in prices)

    cost, by_kind = costs._side_cost(tokens, kinds, Decimal("0.2"), prices)

    rest = tokens - apart if apart <= tokens else tokens
    expected = sum((kinds.get(kind, 0) * price for kind, price in prices.items()), Decimal(0))
    assert cost == expected + rest * Decimal("0.2")
    assert sum(by_kind.values()) == expected
