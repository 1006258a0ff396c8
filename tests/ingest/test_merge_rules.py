"""Any sequence of operations of a run reads back as the model of docs/run-merging.md defines.

The model is a dictionary. Operations arrive by every ingest route; the run is read by every route.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import msgspec
import pytest
from django.test import Client

from apps.core.ids import uuid7
from apps.ingest.otlp import protobuf_decoder
from apps.ingest.otlp.batch_assembly import build_request
from apps.trace_store import run_store
from apps.trace_store.dotted_order import format_segment
from tests.factories.spans import BEGIN, SECOND, export, span
from tests.factories.tracing import multipart_body

OPEN_FIELDS = ("inputs", "outputs", "extra", "events", "error", "serialized", "tags", "name")
ROUTES = (
    *("v1 run", "v1 query", "v1 trace", "v1 thread"),
    *("v2 run", "v2 query", "v2 trace", "v2 traces query", "v2 thread traces"),
    *("public run", "public query", "v2 public run", "v2 public query"),
)
ROUTES_OF_ROOTS = {"v1 thread", "v2 traces query", "v2 thread traces"}
KINDS = (
    *([True], [False], [False], [True, False]),
    *([False, False], [True, True], [False, True, False]),
)
"""Whether each operation of a request is a create; in a request, creates come first."""
KEYS = ("a", "b", "metadata", "runtime", "é", 'q"', "\\u006d", "")
SCALARS = (
    *(None, True, False, 0, 1, -1, 2**70, 0.5, 1e-9, -2.5e300, 1e23),
    *("", "x", "é", "\u2028", '"', "\\", "{", "},", "metadata", "a\tb", "😀"),
)


class Model:
    """The expected run: fields that a later operation does not send keep their values."""

    def __init__(self) -> None:
        self.fields: dict[str, Any] = {}
        self.metadata: dict[str, Any] = {}
        self.extra: Any = None
        self.time: str | None = None

    def apply(self, operation: dict[str, Any], *, is_update: bool, time: str | None) -> None:
        """Null is absent; an update overwrites, a create fills gaps; metadata merges by key."""
        sent = {name: value for name, value in operation.items() if value is not None}
        extra = sent.pop("extra", None)
        has_moved = time is not None and self.time is not None and time != self.time
        self.fields = self.fields | sent if is_update else sent | self.fields
        if has_moved and "start_time" in sent:
            self.fields["start_time"] = sent["start_time"]
        self.time = time or self.time
        if isinstance(extra, dict) and isinstance(extra.get("metadata"), dict | None):
            metadata = extra.get("metadata") or {}
            self.metadata = self.metadata | metadata if is_update else metadata | self.metadata
            extra = {name: value for name, value in extra.items() if name != "metadata"} or None
        if extra is not None and (is_update or self.extra is None):
            self.extra = extra

    def expected_extra(self) -> Any:
        if not self.metadata:
            return self.extra
        if self.extra is None:
            return {"metadata": self.metadata}
        return self.extra | {"metadata": self.metadata}


class Walk:
    """A random sequence of requests about one run, and the model of the run."""

    def __init__(self, api: Any, seed: int) -> None:
        self.api, self.random, self.model = api, random.Random(seed), Model()
        self.run_id = str(uuid7() if self.random.random() < 0.5 else uuid4())
        self.root_id = self.run_id
        """The id of its trace; another one if the run is a child."""
        self.root_order = ""
        self.thread_key = f"thread {self.run_id}"
        now = datetime.now(UTC) - timedelta(minutes=5)
        # Other times of the same run: seconds, hours and days apart.
        self.starts = [now, now - timedelta(seconds=3), now - timedelta(days=3)]
        self.log: list[str] = []

    def execute(self) -> None:
        if self.random.random() < 0.4:
            self._send_root()
        has_create = False
        for _ in range(self.random.randint(1, 6)):
            has_create |= self._send(is_create=None)
            if self.random.random() < 0.3:
                process_pending()
        if not has_create:
            self._send(is_create=True)
        self._send_thread()
        if self.random.random() < 0.5:
            process_pending()

    def _send_root(self) -> None:
        """Send the root of the trace in which the run is a child."""
        self.root_id = str(uuid7())
        self.root_order = format_segment(self.starts[-1], UUID(self.root_id)) + "."
        root = {"id": self.root_id, "trace_id": self.root_id, "session_name": "merging"}
        root |= {"name": "root", "run_type": "chain", "dotted_order": self.root_order[:-1]}
        assert self._send_batch([(True, root)]).status_code == 202

    def _order(self, start: datetime) -> str:
        return self.root_order + format_segment(start, UUID(self.run_id))

    def _position(self, order: str | None) -> dict[str, Any]:
        parent = {} if self.root_id == self.run_id else {"parent_run_id": self.root_id}
        position = {"trace_id": self.root_id, "dotted_order": order, "session_name": "merging"}
        return position | parent

    def _send_thread(self) -> None:
        """Put the run into a thread of its own by a last update."""
        route = self.random.choice(("single", "batch", "multipart"))
        update: dict[str, Any] = {
            "id": self.run_id,
            "extra": {"metadata": {"thread_id": self.thread_key}},
        }
        if route != "single":
            update |= self._position(self.model.time)
        self.log.append(f"{route}: {update}")
        response = getattr(self, f"_send_{route}")([(False, update)])
        assert response.status_code == 202, (response.content, self.log)
        self.model.apply({"extra": update["extra"]}, is_update=True, time=None)

    def _send(self, *, is_create: bool | None) -> bool:
        route = self.random.choice(("single", "batch", "multipart", "otlp"))
        kinds = self.random.choice(KINDS)
        if is_create:
            kinds = [True]
        if route == "otlp":
            return self._send_span()
        if route == "single":
            kinds = kinds[:1]
        if route == "multipart":  # where the names of parts have one create and one update each
            kinds = sorted(set(kinds))
        operations = [(kind, self._operation(route, is_create=kind)) for kind in kinds]
        self.log.append(f"{route}: {operations}")
        response = getattr(self, f"_send_{route}")(operations)
        assert response.status_code == 202, (response.content, self.log)
        # A stable sort: updates of one request keep their order, after its creates.
        for kind, operation in sorted(operations, key=lambda pair: not pair[0]):
            content = {
                name: value
                for name, value in operation.items()
                if name in (*OPEN_FIELDS, "start_time", "end_time", "run_type")
            }
            self.model.apply(content, is_update=not kind, time=operation.get("dotted_order"))
        return True in kinds

    def _send_span(self) -> bool:
        """Send an ended span with the ids of the run, as a client that uses both protocols does."""
        start = self.random.choice(self.starts)
        attributes = {
            "langsmith.span.id": self.run_id,
            "langsmith.trace.id": self.root_id,
            "langsmith.span.dotted_order": self._order(start),
            "langsmith.trace.session_name": "merging",
            "langsmith.metadata.from": self.random.choice(("otlp", "exporter")),
            "gen_ai.prompt": json.dumps(self._object()),
            "gen_ai.completion": json.dumps(self._object()),
        }
        if self.root_id != self.run_id:
            attributes["langsmith.span.parent_id"] = self.root_id
        seconds_after_begin = start.timestamp() - BEGIN / SECOND
        body = export(
            span(name="span", at=seconds_after_begin, attributes=attributes)
        ).SerializeToString()
        self.log.append(f"otlp: {attributes}")
        response = self.api.client.generic(
            "POST", "/otel/v1/traces", body, content_type="application/x-protobuf"
        )
        assert response.status_code == 200, (response.content, self.log)
        # What a span is mapped to is tested in otlp/test_mapping.py.
        [operation] = build_request(protobuf_decoder.decode(body), project=None).operations
        run = json.loads(msgspec.json.encode(operation.run))
        content = {name: run.get(name) for name in (*OPEN_FIELDS, "start_time", "end_time")}
        self.model.apply(content, is_update=False, time=run["dotted_order"])
        return True

    def _operation(self, route: str, *, is_create: bool) -> dict[str, Any]:
        choose = self.random
        start = choose.choice(self.starts) if choose.random() < 0.3 else self.starts[0]
        run: dict[str, Any] = {"id": self.run_id}
        names = choose.sample(OPEN_FIELDS, choose.randint(0, len(OPEN_FIELDS)))
        run |= {name: self._value(name) for name in names}
        if is_create:
            run |= {"name": choose.choice(("first", "second")), "run_type": "chain"}
            run["start_time"] = start.isoformat()
        elif choose.random() < 0.3:
            run["end_time"] = (start + timedelta(seconds=choose.randint(0, 9))).isoformat()
        # Single updates often have no position: they may arrive before the run.
        if route != "single" or is_create or choose.random() < 0.3:
            run |= self._position(self._order(start))
            run.setdefault("start_time", start.isoformat())
        return run

    def _value(self, name: str) -> Any:
        match name:
            case "name":
                return self.random.choice(("renamed", "é", None))
            case "error":
                return self.random.choice(("failed", 'quote " and \\', "", None))
            case "tags":
                return self.random.choice(([], ["a"], ["b", 'c"'], None))
            case "extra" if self.random.random() < 0.7:
                keys = self.random.sample(KEYS, self.random.randint(0, 2))
                extra = {key: self._json(1) for key in keys}
                if self.random.random() < 0.8:
                    some, other = self._object(), self._object()
                    extra["metadata"] = self.random.choice(({}, None, some, other))
                return extra
        value = self._json(3)
        if name == "events" and value is not None:
            return [as_object(item) for item in (value if isinstance(value, list) else [value])]
        return None if value is None else as_object(value)

    def _object(self) -> dict[str, Any]:
        keys = self.random.sample(KEYS, self.random.randint(0, 3))
        return {key: self._json(1) for key in keys}

    def _json(self, depth: int) -> Any:
        kind = self.random.random()
        if depth == 0 or kind < 0.4:
            return self.random.choice(SCALARS)
        if kind < 0.6:
            return [self._json(depth - 1) for _ in range(self.random.randint(0, 3))]
        keys = self.random.sample(KEYS, self.random.randint(0, 3))
        return {key: self._json(depth - 1) for key in keys}

    def _send_single(self, operations: list[tuple[bool, dict[str, Any]]]) -> Any:
        [(is_create, run)] = operations
        if is_create:
            return self.api.post("/runs", run)
        return self.api.patch(f"/runs/{self.run_id}", run)

    def _send_batch(self, operations: list[tuple[bool, dict[str, Any]]]) -> Any:
        body: dict[str, list[Any]] = {"post": [], "patch": []}
        for is_create, run in operations:
            body["post" if is_create else "patch"].append(run)
        return self.api.post("/runs/batch", body)

    def _send_multipart(self, operations: list[tuple[bool, dict[str, Any]]]) -> Any:
        parts: list[tuple[str, Any]] = []
        for is_create, run in operations:
            name = f"{'post' if is_create else 'patch'}.{self.run_id}"
            out_of_line = {
                key: run[key]
                for key in ("inputs", "outputs", "extra", "events", "error", "serialized")
                if key in run and self.random.random() < 0.7
            }
            inline = {key: value for key, value in run.items() if key not in out_of_line}
            parts.append((name, inline))
            parts += [(f"{name}.{key}", value) for key, value in out_of_line.items()]
        self.random.shuffle(parts)
        return self.api.multipart(multipart_body(*parts))


def as_object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {"value": value}


def process_pending() -> None:
    while run_store.process_pending():
        pass


def read_everywhere(api: Any, walk: Walk) -> dict[str, dict[str, Any]]:
    """The run as each route returns it; a response that is not JSON fails here."""
    run_id, root_id, thread_key = walk.run_id, walk.root_id, walk.thread_key
    project_id = api.get("/sessions", name="merging").json()[0]["id"]
    token = api.put(f"/runs/{root_id}/share", {}).json()["share_token"]
    anonymous = Client()
    selects = ["INPUTS", "OUTPUTS", "EXTRA", "EVENTS", "ERROR", "TAGS", "NAME", "START_TIME"]
    turn_selects = ["TRACE_ID", "INPUTS", "OUTPUTS", "ERROR", "NAME", "START_TIME"]
    project = {"project_id": project_id}
    by_id = {"session": [project_id], "id": [run_id]}
    whole_trace = {"session": [project_id], "trace": root_id}
    v1_select = {"select": [*OPEN_FIELDS, "start_time"]}
    since = {"min_start_time": (datetime.now(UTC) - timedelta(days=4)).isoformat()}
    requests: dict[str, Callable[[], Any]] = {
        "v1 run": lambda: api.get(f"/runs/{run_id}"),
        "v1 query": lambda: api.post("/runs/query", by_id | v1_select),
        "v1 trace": lambda: api.post("/runs/query", whole_trace | v1_select),
        "v1 thread": lambda: api.get(
            f"/runs/threads/{thread_key}", session_id=project_id, **v1_select
        ),
        "v2 run": lambda: api.get(f"/v2/runs/{run_id}", selects=selects, **project),
        "v2 query": lambda: api.post(
            "/v2/runs/query", {"project_ids": [project_id], "ids": [run_id], "selects": selects}
        ),
        "v2 trace": lambda: api.get(f"/v2/traces/{root_id}/runs", selects=selects, **project),
        "v2 traces query": lambda: api.post(
            "/v2/traces/query", project | since | {"trace_ids": [run_id], "selects": selects}
        ),
        "v2 thread traces": lambda: api.get(
            f"/v2/threads/{thread_key}/traces", selects=turn_selects, **project, **since
        ),
        "public run": lambda: anonymous.get(f"/public/{token}/run/{run_id}"),
        "public query": lambda: anonymous.post(
            f"/public/{token}/runs/query", {}, content_type="application/json"
        ),
        "v2 public run": lambda: anonymous.get(
            f"/v2/public/{token}/run/{run_id}", {"selects": selects}
        ),
        "v2 public query": lambda: anonymous.post(
            f"/v2/public/{token}/runs/query",
            {"selects": selects},
            content_type="application/json",
        ),
    }
    assert tuple(requests) == ROUTES
    runs = {}
    for route, request in requests.items():
        if route in ROUTES_OF_ROOTS and run_id != root_id:
            continue
        response = request()
        assert response.status_code == 200, (route, response.content)
        body = json.loads(response.content)
        rows = body.get("runs", body.get("items", [body]))
        rows = [row.get("root_run", row) for row in rows]
        # A turn of a thread has only the id of its trace, which is the id of its root run.
        matching = [row for row in rows if row.get("id", row.get("trace_id")) == run_id]
        assert len(matching) == 1, (route, rows)
        runs[route] = matching[0]
    return runs


def differences(expected: Model, shown: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """The fields in which a response differs from the model; absent and empty are the same."""
    values = expected.fields | {"extra": expected.expected_extra()}
    result = {}
    for name in values.keys() & shown.keys():
        normalized = [_normalize(name, value) for value in (values[name], shown[name])]
        if normalized[0] != normalized[1]:
            result[name] = (values[name], shown[name])
    return result


def _normalize(name: str, value: Any) -> Any:
    if name in {"start_time", "end_time"}:
        parsed = datetime.fromisoformat(value)
        return parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)
    if name == "extra" and isinstance(value, dict) and not value.get("metadata", True):
        value = {key: inner for key, inner in value.items() if key != "metadata"}
    return value or None


def check_walks(api: Any, seeds: Sequence[int]) -> None:
    failures = []
    for seed in seeds:
        walk = Walk(api, seed)
        walk.execute()
        runs = read_everywhere(api, walk)
        for route in runs:
            if wrong := differences(walk.model, runs[route]):
                failures.append(f"seed {seed}, {route}: {wrong}\n  " + "\n  ".join(walk.log))
                break
        rows = run_store.fetch_rows(api.workspace_id, {UUID(walk.run_id)})
        assert len(rows) == 1
        assert str(rows[0].trace_id) == walk.root_id
    assert not failures, f"{len(failures)} of {len(seeds)} walks\n" + "\n".join(failures[:5])


@pytest.fixture
def walking_api(api, workspace):
    api.workspace_id = workspace.pk
    return api


def test_every_sequence_of_operations_reads_back_as_the_model(walking_api):
    # In walk 5160 a request moves a run away from its stored position and back again.
    check_walks(walking_api, [*range(20), 5160])


@pytest.mark.slow
@pytest.mark.parametrize("first", range(20, 1000, 70))  # each within the deadline of a test
def test_many_sequences_of_operations_read_back_as_the_model(walking_api, first):
    check_walks(walking_api, range(first, first + 70))
