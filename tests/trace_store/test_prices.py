"""The price map and the costs of model runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.test import Client
from hypothesis import given
from hypothesis import strategies as st

from apps.ingest import decoders
from apps.ingest.services import ingest_runs
from apps.ingest.token_usage import usage_columns
from apps.organizations.models import Workspace
from apps.trace_store import ChangedRun
from apps.trace_store.models import ModelPrice
from apps.trace_store.postgres.postprocess import missing_costs
from apps.trace_store.pricing import costs, entries, price_map
from tests.factories.tracing import end_fields, ingest, read_run, start_fields, wire_run
from tests.tracing.conftest import Api

PATH = "/model-price-map"
Commit = Callable[..., Any]


def price_body(**fields: Any) -> dict[str, Any]:
    return {
        "name": "mine",
        "match_pattern": "^my-model",
        "prompt_cost": "0.000001",
        "completion_cost": "0.000002",
    } | fields


def token_counts(prompt: int, completion: int, **details: Any) -> dict[str, Any]:
    return {"input_tokens": prompt, "output_tokens": completion, **details}


def build_model_run(model: str, token_usage: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """Build a model run as clients post it."""
    metadata = {"ls_model_name": model, **fields.pop("metadata", {})}
    return wire_run(
        run_type="llm",
        outputs={"usage_metadata": token_usage},
        extra={"metadata": metadata},
        **fields,
    )


def ingest_and_read(workspace: Workspace, run: dict[str, Any]) -> Any:
    ingest(workspace, run)
    return read_run(workspace, run["id"]).row


@pytest.fixture
def create_price(workspace: Workspace) -> Callable[..., ModelPrice]:
    """Create a price entry of the workspace."""

    def create_entry(**fields: Any) -> ModelPrice:
        values = price_body(**fields)
        prices = {name: Decimal(values.pop(name)) for name in ("prompt_cost", "completion_cost")}
        price = ModelPrice(workspace=workspace, **values, **prices)
        price.save()
        price_map.invalidate(workspace.pk)
        return price

    return create_entry


def test_anonymous_is_rejected(db: None) -> None:
    assert Client().get(PATH).status_code == 401


def test_an_ingest_key_sets_no_prices(make_api: Callable[..., Api], workspace: Workspace) -> None:
    assert make_api(workspace, "ingest").get(PATH).status_code == 403
    assert make_api(workspace, "read").get(PATH).status_code == 200
    assert make_api(workspace, "write").post(PATH, price_body()).status_code == 403
    assert not ModelPrice.unscoped.exists()


def test_an_entry_is_created_changed_and_deleted(
    api: Api, workspace: Workspace, django_capture_on_commit_callbacks: Commit
) -> None:
    details = {"cache_read": 1e-7, "audio": "0.00004"}
    created = api.post(PATH, price_body(prompt_cost=1e-6, prompt_cost_details=details)).json()
    listed = api.get(PATH).json()

    assert created == {
        "id": created["id"],
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
    assert listed[0] == created
    assert len(listed) == 1 + len(entries.built_in_entries())
    assert {entry["tenant_id"] for entry in listed[1:]} == {None}

    with django_capture_on_commit_callbacks(execute=True):
        changed = api.client.put(
            f"{PATH}/{created['id']}",
            price_body(prompt_cost="0.5"),
            content_type="application/json",
        )
    assert changed.json()["prompt_cost"] == "0.5"
    assert changed.json()["prompt_cost_details"] == {}
    assert api.delete(f"{PATH}/{created['id']}").status_code == 200
    assert api.delete(f"{PATH}/{created['id']}").status_code == 404


def test_the_price_map_is_paged(api: Api) -> None:
    response = api.get(PATH, limit=2, offset=1)

    assert [row["id"] for row in response.json()] == [
        str(entry.id) for entry in entries.built_in_entries()[1:3]
    ]
    assert response["X-Pagination-Total"] == str(len(entries.built_in_entries()))


def test_foreign_and_built_in_entries_are_not_deleted(api: Api, other_workspace: Workspace) -> None:
    foreign = ModelPrice(
        workspace=other_workspace, name="f", match_pattern="f", prompt_cost=1, completion_cost=1
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
def test_an_invalid_price_is_rejected(api: Api, fields: dict[str, Any]) -> None:
    assert api.post(PATH, price_body(**fields)).status_code == 422
    assert not ModelPrice.unscoped.exists()


def test_costs_are_exact(workspace: Workspace, create_price: Callable[..., ModelPrice]) -> None:
    entry = create_price(prompt_cost="0.000000000000000001", completion_cost="0.1")

    row = ingest_and_read(workspace, build_model_run("my-model-7", token_counts(3, 2)))

    assert (row.usage.prompt_cost, row.usage.completion_cost, row.usage.total_cost) == (
        Decimal("0.000000000000000003"),
        Decimal("0.2"),
        Decimal("0.200000000000000003"),
    )
    assert row.price_model_id == entry.pk


def test_token_kinds_with_a_price_are_charged_separately(
    workspace: Workspace, create_price: Callable[..., ModelPrice]
) -> None:
    create_price(
        prompt_cost_details={"cache_read": "0.0000001", "cache_creation": "0.000004"},
        completion_cost_details={"reasoning": "0.00001"},
    )
    reported = token_counts(
        100,
        50,
        input_token_details={"cache_read": 60, "cache_creation": 10, "audio": 5},
        output_token_details={"reasoning": 20},
    )

    row = ingest_and_read(workspace, build_model_run("my-model", reported))

    # 70 tokens have their own prices; the other 30, with the audio, have the base price.
    assert row.usage.prompt_cost == Decimal("0.000076")
    assert row.usage.completion_cost == Decimal("0.00026")
    assert row.usage.details["prompt_cost_details"] == {
        "cache_read": "0.0000060",
        "cache_creation": "0.000040",
    }


def test_large_reported_cost_is_stored_exactly() -> None:
    outputs = {"usage_metadata": {"total_cost": "1234567890123.000000000000000001"}}

    columns = usage_columns("llm", outputs, None)

    assert columns == {"total_cost": Decimal("1234567890123.000000000000000001")}


def test_a_cost_reported_by_the_client_is_kept(
    workspace: Workspace, create_price: Callable[..., ModelPrice]
) -> None:
    create_price()

    row = ingest_and_read(workspace, build_model_run("my-model", token_counts(1, 1, total_cost=7)))

    assert row.usage.total_cost == Decimal(7)
    assert row.usage.prompt_cost is None
    assert row.price_model_id is None


def test_a_run_is_charged_by_the_newest_entry_valid_at_its_start(
    workspace: Workspace, create_price: Callable[..., ModelPrice]
) -> None:
    now = datetime.now(UTC)
    create_price(prompt_cost="1", start_time=now - timedelta(hours=2))
    create_price(prompt_cost="2", start_time=now - timedelta(hours=1))
    create_price(prompt_cost="3", start_time=now + timedelta(hours=1))
    create_price(prompt_cost="4")

    priced_runs = [
        ingest_and_read(
            workspace,
            build_model_run("my-model", token_counts(1, 0), start=now - timedelta(minutes=ago)),
        )
        for ago in (1, 90, 180)
    ]

    assert [row.usage.prompt_cost for row in priced_runs] == [Decimal(2), Decimal(1), Decimal(4)]


def test_entries_of_the_workspace_override_built_in_entries(
    workspace: Workspace, other_workspace: Workspace, create_price: Callable[..., ModelPrice]
) -> None:
    create_price(match_pattern="^gpt-4o$", prompt_cost="1", completion_cost="1")

    assert (
        ingest_and_read(workspace, build_model_run("gpt-4o", token_counts(1, 1))).usage.total_cost
        == 2
    )
    assert ingest_and_read(
        other_workspace, build_model_run("gpt-4o", token_counts(1, 1))
    ).usage.total_cost == Decimal("0.0000125")


def test_an_entry_with_a_provider_matches_only_that_provider(
    workspace: Workspace, create_price: Callable[..., ModelPrice]
) -> None:
    create_price(provider="azure", prompt_cost="5")
    create_price(provider=None, prompt_cost="1")

    prompt_costs = [
        ingest_and_read(
            workspace, build_model_run("my-model", token_counts(1, 0), metadata=metadata)
        ).usage.prompt_cost
        for metadata in ({"ls_provider": "azure"}, {"ls_provider": "other"}, {})
    ]

    assert prompt_costs == [5, 1, 1]


def test_the_model_name_is_read_from_the_match_path_of_the_entry(
    workspace: Workspace, create_price: Callable[..., ModelPrice]
) -> None:
    create_price(match_path=["endpoint_name"])
    parameters = {"invocation_params": {"endpoint_name": "my-model", "model": "x"}}

    by_endpoint = wire_run(
        run_type="llm", outputs={"usage_metadata": token_counts(1, 0)}, extra=parameters
    )
    by_model = wire_run(
        run_type="llm",
        outputs={"usage_metadata": token_counts(1, 0)},
        extra={"invocation_params": {"model": "my-model"}},
    )

    assert ingest_and_read(workspace, by_endpoint).usage.prompt_cost == Decimal("0.000001")
    assert ingest_and_read(workspace, by_model).usage.prompt_cost is None


def test_a_new_price_does_not_change_stored_runs(
    workspace: Workspace, create_price: Callable[..., ModelPrice]
) -> None:
    run = build_model_run("my-model", token_counts(1, 0))
    before = ingest_and_read(workspace, run).usage
    create_price()

    assert before.total_cost is None
    assert read_run(workspace, run["id"]).row.usage.total_cost is None


def test_tokens_and_model_sent_in_different_requests_are_priced_later(
    workspace: Workspace, create_price: Callable[..., ModelPrice]
) -> None:
    create_price()
    run = build_model_run("my-model", token_counts(10, 0))
    ingest(workspace, start_fields(run))
    body_of_update = {"patch": [end_fields(run)]}
    ingest_runs.ingest(workspace.pk, decoders.decode_batch(json.dumps(body_of_update).encode()))
    row = read_run(workspace, run["id"]).row
    changed_run = ChangedRun(row.id, row.project_id, row.partition_time, row.trace_id)
    missing_costs.add_missing_costs(workspace.pk, [changed_run])
    missing_costs.add_missing_costs(workspace.pk, [changed_run])

    priced_row = read_run(workspace, run["id"]).row
    assert row.usage.total_cost is None
    assert priced_row.usage.total_cost == Decimal("0.00001")
    assert priced_row.price_model_id is not None


def test_a_deleted_entry_is_not_used_after_the_cache_expires(
    workspace: Workspace, create_price: Callable[..., ModelPrice], monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = create_price()
    names = {"model": "my-model"}
    assert price_map.find_entry(workspace.pk, names, None, None) is not None

    entry.delete()
    cached = price_map.find_entry(workspace.pk, names, None, None)
    monkeypatch.setattr(price_map, "CACHE_SECONDS", 0)
    refreshed = price_map.find_entry(workspace.pk, names, None, None)

    assert cached is not None
    assert refreshed is None


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
        ("an unknown model", None, None),
    ],
)
def test_a_built_in_entry_matches_the_model_name(
    workspace: Workspace, model: str, provider: str | None, name: str | None
) -> None:
    entry = price_map.find_entry(workspace.pk, {"ls_model_name": model}, provider, None)

    assert (entry and entry.name) == name


@given(
    plain=st.integers(0, 10**9),
    kinds=st.dictionaries(st.sampled_from(["cache_read", "audio", "other"]), st.integers(0, 10**9)),
)
def test_the_cost_is_the_sum_of_the_costs_of_the_token_kinds(
    plain: int, kinds: dict[str, int]
) -> None:
    prices = {"cache_read": Decimal("0.1"), "audio": Decimal("0.3")}
    tokens = plain + sum(kinds.values())

    cost, by_kind = costs._side_cost(tokens, kinds, Decimal("0.2"), prices)

    rest = plain + kinds.get("other", 0)
    expected = sum((kinds.get(kind, 0) * price for kind, price in prices.items()), Decimal(0))
    assert cost == expected + rest * Decimal("0.2")
    assert sum(by_kind.values()) == expected
