"""What members and clients can create without end, and no retention removes, has a bound."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.utils import timezone

from apps.agent_server.services import assistant_changes, crons
from apps.api_keys.services import issue_keys
from apps.datasets.services import datasets
from apps.feedback.services import configs, formulas, tokens
from apps.monitoring.services import dashboards
from apps.tracing.services import ensure_project, saved_views, sharing
from tests.agent_server.conftest import agent, clear_caches, key, send
from tests.factories.agent_server import route_of
from tests.factories.tracing import ingest, wire_run
from tests.tracing.conftest import api, forget_known_partitions, make_api, objects

__all__ = [
    "agent",
    "api",
    "clear_caches",
    "forget_known_partitions",
    "key",
    "make_api",
    "objects",
    "send",
]

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("forget_known_partitions")]


def refuses_the_third(create: Any) -> None:
    """The bound is two; a refused request names it."""
    assert [create(number).status_code // 100 for number in range(2)] == [2, 2]
    refused = create(2)
    assert refused.status_code == 409, refused.content
    assert refused.json()["code"] == "too_many"
    assert "at most 2 " in refused.json()["detail"]


def test_resources_of_the_api(api, workspace, monkeypatch):
    project = ensure_project(workspace.pk, "default").pk
    runs = [wire_run() for _ in range(3)]
    ingest(workspace, *runs)
    later = (timezone.now() + timedelta(days=1)).isoformat()
    for module, name in (
        (saved_views, "MAX_VIEWS"),
        (sharing, "MAX_SHARES"),
        (configs, "MAX_CONFIGS"),
        (formulas, "MAX_FORMULAS"),
        (tokens, "MAX_TOKENS"),
        (datasets, "MAX_DATASETS"),
        (dashboards, "MAX_SECTIONS"),
    ):
        monkeypatch.setattr(module, name, 2)

    refuses_the_third(
        lambda n: api.post(f"/sessions/{project}/views", {"display_name": f"view {n}"})
    )
    refuses_the_third(lambda n: api.put(f"/runs/{runs[n]['id']}/share", {}))
    refuses_the_third(
        lambda n: api.post(
            "/feedback-configs",
            {"feedback_key": f"key {n}", "feedback_config": {"type": "continuous"}},
        )
    )
    refuses_the_third(
        lambda n: api.post(
            "/feedback/formulas",
            {
                "feedback_key": f"formula {n}",
                "session_id": str(project),
                "aggregation_type": "sum",
                "formula_parts": [{"part_type": "weighted_key", "key": "a", "weight": 1}],
            },
        )
    )
    refuses_the_third(
        lambda n: api.post(
            "/feedback/tokens",
            {"run_id": runs[n]["id"], "feedback_key": "a", "expires_at": later},
        )
    )
    refuses_the_third(lambda n: api.post("/datasets", {"name": f"dataset {n}"}))
    refuses_the_third(lambda n: api.post("/charts/section", {"title": f"board {n}"}))


def test_keys_of_an_organization(workspace, make_api, monkeypatch):
    api = make_api(workspace)
    count = issue_keys.ApiKey.objects.filter(organization=workspace.organization).count()
    monkeypatch.setattr(issue_keys, "MAX_KEYS", count + 1)

    created, refused = (api.post("/api-key", {"description": "key"}) for _ in range(2))

    assert created.status_code == 200
    assert (refused.status_code, refused.json()["code"]) == (409, "too_many")
    assert api.delete(f"/api-key/{created.json()['id']}").status_code == 200
    assert api.post("/api-key", {"description": "key"}).status_code == 200


def test_resources_of_an_agent(agent, send, monkeypatch):
    graphs = route_of(agent).graph_ids  # each has an assistant
    monkeypatch.setattr(assistant_changes, "MAX_ASSISTANTS", len(graphs) + 2)
    monkeypatch.setattr(assistant_changes, "MAX_VERSIONS", 3)
    monkeypatch.setattr(crons, "MAX_CRONS", 2)
    assistant = str(uuid4())

    answers = [
        send("post", "/assistants", {"graph_id": "agent", "assistant_id": assistant_id})
        for assistant_id in (assistant, str(uuid4()), str(uuid4()))
    ]
    changes = [send("patch", f"/assistants/{assistant}", {"name": f"{n}"}) for n in range(3)]
    cron = {"assistant_id": "agent", "schedule": "0 0 1 1 *", "input": {}}
    scheduled = [send("post", "/runs/crons", cron) for _ in range(3)]

    for results in (answers, changes, scheduled):
        assert [answer.status_code for answer in results] == [200, 200, 409]
        assert "at most" in results[2].json()["detail"]
