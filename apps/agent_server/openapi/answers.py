"""What the code of a route does not say: what it answers, and what its query may be.

A route that is not named here is described by its own words, with an answer of any JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from apps.agent_server.openapi import shapes
from apps.agent_server.openapi.handlers import Handler
from apps.agent_server.schemas.states import StatePatch, StateUpdate
from apps.agent_server.schemas.store import ItemReference, NewItem

JSON = "application/json"
EVENTS = "text/event-stream"
Query = Mapping[str, dict[str, Any]]


@dataclass(frozen=True)
class Told:
    """What is said of one route beside what its code says."""

    answer: Any = None
    """A model, a list of one, a type; None for any JSON."""
    status: int = 200
    media: str = JSON
    has_body: bool = True
    """Of the answer."""
    also: Mapping[int, str] = field(default_factory=dict)
    """Other answers of success without a shape of their own, with the reason."""
    bodies: tuple[Any, ...] | None = None
    """Of the request, where the code names others as well."""
    query: Query = field(default_factory=dict)
    summary: str | None = None


_FLAG: dict[str, Any] = {"type": "boolean", "default": False}
_PAGED = "next"
NO_CONTENT = Told(status=204, has_body=False)
_EVENTS = Told(media=EVENTS)

TOLD: dict[str, Told] = {
    "GET /": Told(shapes.Alive, query={"check_db": _FLAG}),
    "GET /ok": Told(shapes.Alive, query={"check_db": _FLAG}),
    "GET /info": Told(shapes.Info),
    "GET /metrics": Told(
        shapes.MetricsFigures,
        query={"format": {"enum": ["prometheus", "json"], "default": "prometheus"}},
    ),
    "GET /openapi.json": Told(dict[str, Any]),
    "GET /docs": Told(str, media="text/html"),
    # Assistants
    "POST /assistants": Told(shapes.Assistant),
    "POST /assistants/search": Told(list[shapes.SomeOfAssistant]),
    "POST /assistants/count": Told(int),
    "GET /assistants/{assistant_id}": Told(shapes.Assistant),
    "PATCH /assistants/{assistant_id}": Told(shapes.Assistant),
    "DELETE /assistants/{assistant_id}": Told(
        status=204, has_body=False, query={"delete_threads": _FLAG}
    ),
    "POST /assistants/{assistant_id}/versions": Told(list[shapes.AssistantVersion]),
    "POST /assistants/{assistant_id}/latest": Told(shapes.Assistant),
    "GET /assistants/{assistant_id}/graph": Told(
        shapes.Drawing,
        query={
            "xray": {
                "anyOf": [{"type": "boolean"}, {"type": "integer", "minimum": 0}],
                "default": False,
            }
        },
    ),
    "GET /assistants/{assistant_id}/schemas": Told(shapes.GraphSchemas),
    "GET /assistants/{assistant_id}/subgraphs": Told(dict[str, shapes.Schemas]),
    "GET /assistants/{assistant_id}/subgraphs/{namespace}": Told(dict[str, shapes.Schemas]),
    # Threads
    "POST /threads": Told(shapes.Thread, summary="Make a thread."),
    "POST /threads/search": Told(list[shapes.SomeOfThread], summary="A page of threads."),
    "POST /threads/count": Told(int, summary="How many threads there are."),
    "POST /threads/prune": Told(shapes.Pruned, summary="Delete threads, or all but their heads."),
    "GET /threads/{thread_id}": Told(
        shapes.Thread,
        query={"include": {"type": "array", "items": {"enum": ["ttl"]}}},
        summary="One thread.",
    ),
    "PATCH /threads/{thread_id}": Told(
        shapes.Thread,
        also={204: "Done; the request preferred no more (`Prefer: return=minimal`)."},
        summary="Merge into a thread's metadata.",
    ),
    "DELETE /threads/{thread_id}": Told(
        status=204, has_body=False, summary="Delete a thread with its runs and its state."
    ),
    "POST /threads/{thread_id}/copy": Told(
        shapes.Thread, bodies=(), summary="Copy a thread with all its state."
    ),
    "GET /threads/{thread_id}/storage": Told(dict[str, Any]),
    "GET /threads/{thread_id}/state": Told(
        shapes.State,
        query={"subgraphs": _FLAG, "select": {"type": "array", "items": {"type": "string"}}},
        summary="The state of a thread as it is now.",
    ),
    "POST /threads/{thread_id}/state": Told(
        shapes.StateUpdated, bodies=(StateUpdate,), summary="Change the state of a thread."
    ),
    "PATCH /threads/{thread_id}/state": Told(
        status=204,
        has_body=False,
        bodies=(StatePatch,),
        summary="Merge into the metadata of a thread.",
    ),
    "GET /threads/{thread_id}/state/{checkpoint_id}": Told(
        shapes.State, summary="The state of a thread as it was at a checkpoint."
    ),
    "POST /threads/{thread_id}/state/checkpoint": Told(
        shapes.State, summary="The state of a thread as it was at a checkpoint."
    ),
    "GET /threads/{thread_id}/history": Told(
        list[shapes.State],
        query={
            "limit": {"type": "integer", "minimum": 1, "maximum": 1000, "default": 1},
            "before": {"type": "string", "format": "uuid"},
        },
        summary="Past states of a thread, newest first.",
    ),
    "POST /threads/{thread_id}/history": Told(
        list[shapes.State], summary="Past states of a thread, newest first."
    ),
    # Runs
    "POST /threads/{thread_id}/runs": Told(shapes.Run, summary="Start a run on a thread."),
    "GET /threads/{thread_id}/runs": Told(
        list[shapes.SomeOfRun],
        query={
            "limit": {"type": "integer", "minimum": 1, "maximum": 1000, "default": 10},
            "offset": {"type": "integer", "minimum": 0, "default": 0},
        },
        summary="The runs of a thread, newest first.",
    ),
    "POST /threads/{thread_id}/runs/wait": Told(
        summary="Start a run on a thread and wait for what it leaves."
    ),
    "POST /threads/{thread_id}/runs/stream": Told(
        media=EVENTS, summary="Start a run on a thread and follow its events."
    ),
    "GET /threads/{thread_id}/runs/{run_id}": Told(shapes.Run, summary="One run."),
    "DELETE /threads/{thread_id}/runs/{run_id}": NO_CONTENT,
    "GET /threads/{thread_id}/runs/{run_id}/join": Told(
        summary="Wait for a run, and answer what its thread holds then."
    ),
    "GET /threads/{thread_id}/runs/{run_id}/stream": Told(
        media=EVENTS, summary="Follow the events of a run, from where the reader was."
    ),
    "POST /threads/{thread_id}/runs/{run_id}/cancel": Told(
        status=202,
        has_body=False,
        also={200: "The run has stopped (`wait`)."},
        bodies=(),
        query={"action": {"enum": ["interrupt", "rollback"], "default": "interrupt"}},
    ),
    "GET /threads/{thread_id}/runs/{run_id}/webhooks": Told(list[shapes.Delivery]),
    "GET /runs/{run_id}/webhooks": Told(list[shapes.Delivery]),
    "POST /runs": Told(shapes.Run, summary="Start a run on a thread of its own."),
    "POST /runs/batch": Told(list[shapes.Run], summary="Start several runs at once."),
    "POST /runs/wait": Told(summary="Start a run on a thread of its own and wait for its result."),
    "POST /runs/stream": Told(
        media=EVENTS, summary="Start a run on a thread of its own and follow its events."
    ),
    "POST /runs/cancel": Told(
        status=204,
        has_body=False,
        query={"action": {"enum": ["interrupt", "rollback"], "default": "interrupt"}},
    ),
    "GET /runs/{run_id}/join": Told(summary="Wait for a stateless run."),
    "GET /runs/{run_id}/stream": Told(
        media=EVENTS, summary="Follow the events of a stateless run."
    ),
    # Event streaming
    "POST /threads/{thread_id}/commands": Told(
        shapes.CommandAnswer,
        bodies=(shapes.CommandEnvelope,),
        summary="Give a command to a thread; an error of it is in the envelope.",
    ),
    "POST /threads/{thread_id}/stream/events": Told(media=EVENTS),
    "GET /threads/{thread_id}/stream": Told(media=EVENTS),
    # Crons
    "POST /runs/crons": Told(shapes.Cron),
    "POST /runs/crons/search": Told(list[shapes.SomeOfCron]),
    "POST /runs/crons/count": Told(int),
    "GET /runs/crons/{cron_id}": Told(shapes.Cron),
    "PATCH /runs/crons/{cron_id}": Told(shapes.Cron),
    "DELETE /runs/crons/{cron_id}": NO_CONTENT,
    "POST /threads/{thread_id}/runs/crons": Told(shapes.Cron),
    # Store
    "GET /store/items": Told(
        shapes.Item | None,
        query={
            "key": {"type": "string"},
            "namespace": {"type": "string", "description": "labels joined by dots"},
            "refresh_ttl": {"type": "boolean"},
        },
        summary="One item of the store, or null.",
    ),
    "PUT /store/items": Told(
        status=204, has_body=False, bodies=(NewItem,), summary="Keep an item in the store."
    ),
    "DELETE /store/items": Told(
        status=204, has_body=False, bodies=(ItemReference,), summary="Delete an item of the store."
    ),
    "POST /store/items/search": Told(shapes.FoundItems),
    "POST /store/namespaces": Told(shapes.Namespaces),
}
# Addresses that only share a consumer with others, and answer no client.
HIDDEN = frozenset(
    {
        "GET /threads/{thread_id}/state/checkpoint",
        "POST /threads/{thread_id}/state/{checkpoint_id}",
    }
)


def told(handler: Handler) -> Told:
    return TOLD.get(handler.key, _BY_METHOD.get(handler.method, Told()))


_BY_METHOD = {"delete": NO_CONTENT}
