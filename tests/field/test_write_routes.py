"""The public client reads what each write accepts (langsmith-sdk#1924 for feedback)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

import pytest
from langsmith import schemas

from apps.feedback.models import Feedback
from apps.ingest.otlp.spans import trace_run_id
from apps.organizations.models import Workspace
from tests.experiments.test_uploads import upload_body
from tests.factories.organizations import WorkspaceFactory
from tests.factories.prompts import prompt_manifest
from tests.factories.spans import export, span
from tests.factories.tracing import MULTIPART, multipart_body, wire_run
from tests.tracing.conftest import Api

pytestmark = pytest.mark.django_db


@pytest.fixture
def workspace(db: None) -> Workspace:
    """One with a handle, which public prompts need."""
    return WorkspaceFactory(handle="acme")


ODD_VALUES = (
    *(True, 1, -1.5, 10**30, "text", "", [], ["text"], [{"a": 1}], {}, {"a": [None]}),
    {"type": 5, "metadata": ["x"]},
    {"type": None, "metadata": {"a": "b"}},
)
"""Values of every JSON type, which each field of a request either takes or refuses."""


@dataclass(frozen=True)
class Write:
    """A request whose body a test varies, and the read that shows what was stored."""

    path: str
    body: dict[str, Any]
    read_path: str
    method: str = "POST"
    encode: Callable[[dict[str, Any]], Any] = lambda body: body
    """Returns the JSON of the request, or the parts of a multipart body as a list of tuples."""

    def send(self, api: Api, changes: dict[str, Any]) -> Any:
        content = self.encode(self.body | changes)
        if isinstance(content, list) and content and isinstance(content[0], tuple):
            body = multipart_body(*content)
            return api.client.generic(self.method, self.path, body, content_type=MULTIPART)
        send = getattr(api.client, self.method.lower())
        return send(self.path, content, content_type="application/json")


@dataclass(frozen=True)
class Route:
    """A route that writes an object, its fields to vary, and the client's model of a read.

    The models of 0.15, which the tests have, are those of 0.11 in all these fields.
    """

    name: str
    fields: tuple[str, ...]
    prepare: Callable[[Api], Write]
    """Creates what the write refers to."""
    model: Callable[..., Any]
    rows: Callable[[Any], Iterable[dict[str, Any]]] = lambda content: [content]
    """The rows in the JSON of a read."""

    def __str__(self) -> str:
        return self.name


def create(api: Api, path: str, body: dict[str, Any]) -> dict[str, Any]:
    response = api.post(path, body)
    assert response.status_code in {200, 201, 202}, response.content
    content: dict[str, Any] = response.json()
    return content


# Feedback


def feedback_body() -> dict[str, Any]:
    return {"id": str(uuid4()), "key": f"key-{uuid4()}", "run_id": str(uuid4())}


def create_feedback(api: Api) -> Write:
    body = feedback_body()
    return Write("/feedback", body, f"/feedback/{body['id']}")


def create_feedback_eagerly(api: Api) -> Write:
    body = feedback_body()
    return Write("/feedback/eager", body, f"/feedback/{body['id']}")


def change_feedback(api: Api) -> Write:
    body = feedback_body() | {"value": "first", "correction": "first"}
    path = f"/feedback/{create(api, '/feedback', body)['id']}"
    return Write(path, {}, path, "PATCH")


def create_feedback_by_multipart(api: Api) -> Write:
    body = feedback_body()
    path = f"/feedback/{body['id']}"
    return Write(
        "/runs/multipart", body, path, encode=lambda body: [(f"feedback.{body['id']}", body)]
    )


def redeem_token(api: Api) -> Write:
    run_id = str(uuid4())
    token = create(api, "/feedback/tokens", {"run_id": run_id, "feedback_key": "k"})
    return Write(f"/feedback/tokens/{token['id']}", {}, f"/feedback?run={run_id}")


def upload_score(api: Api) -> Write:
    """A score of an uploaded run."""
    score = {"key": f"key-{uuid4()}"}
    name = f"upload-{uuid4()}"

    def encode(score: dict[str, Any]) -> dict[str, Any]:
        body = upload_body(experiment_name=name, dataset_name=name)
        result = body["results"][0] | {"row_id": str(uuid4()), "evaluation_scores": [score]}
        return body | {"results": [result], "summary_experiment_scores": []}

    return Write(
        "/datasets/upload-experiment", score, f"/feedback?key={score['key']}", encode=encode
    )


def create_config(api: Api) -> Write:
    key = f"key-{uuid4()}"
    body = {"feedback_key": key, "feedback_config": {"type": "continuous"}}
    return Write("/feedback-configs", body, f"/feedback-configs?key={key}")


def change_config(api: Api) -> Write:
    write = create_config(api)
    categories = [{"value": 0, "label": "bad"}, {"value": 1, "label": "good"}]
    config = {"type": "categorical", "categories": categories}
    create(api, write.path, write.body | {"feedback_config": config})
    body = {"feedback_key": write.body["feedback_key"]}
    return Write(write.path, body, write.read_path, "PATCH")


def create_formula(api: Api) -> Write:
    project = create(api, "/sessions", {"name": f"project-{uuid4()}"})
    body = {
        "session_id": project["id"],
        "feedback_key": "sum",
        "aggregation_type": "sum",
        "formula_parts": [{"part_type": "weighted_key", "key": "a", "weight": 1}],
    }
    return Write("/feedback/formulas", body, f"/feedback/formulas?session_id={project['id']}")


def change_formula(api: Api) -> Write:
    write = create_formula(api)
    path = f"/feedback/formulas/{create(api, write.path, write.body)['id']}"
    body = {name: value for name, value in write.body.items() if name != "session_id"}
    return Write(path, body, path, "PUT")


# Runs


def create_run(api: Api) -> Write:
    run = wire_run()
    return Write("/runs", run, f"/runs/{run['id']}")


def create_runs(api: Api) -> Write:
    run = wire_run()
    return Write("/runs/batch", run, f"/runs/{run['id']}", encode=lambda run: {"post": [run]})


def create_run_by_multipart(api: Api) -> Write:
    run = wire_run()
    read_path = f"/runs/{run['id']}"
    return Write("/runs/multipart", run, read_path, encode=lambda run: [(f"post.{run['id']}", run)])


def change_run(api: Api) -> Write:
    run = wire_run()
    create(api, "/runs", run)
    return Write(f"/runs/{run['id']}", {}, f"/runs/{run['id']}", "PATCH")


# Projects, datasets, examples, experiments


def create_project(api: Api) -> Write:
    body = {"id": str(uuid4()), "name": f"project-{uuid4()}"}
    return Write("/sessions", body, f"/sessions/{body['id']}")


def change_project(api: Api) -> Write:
    path = f"/sessions/{create(api, '/sessions', {'name': f'project-{uuid4()}'})['id']}"
    return Write(path, {}, path, "PATCH")


def create_dataset(api: Api) -> Write:
    body = {"id": str(uuid4()), "name": f"dataset-{uuid4()}"}
    return Write("/datasets", body, f"/datasets/{body['id']}")


def change_dataset(api: Api) -> Write:
    path = f"/datasets/{create(api, '/datasets', {'name': f'dataset-{uuid4()}'})['id']}"
    return Write(path, {}, path, "PATCH")


def create_example(api: Api) -> Write:
    dataset = create(api, "/datasets", {"name": f"dataset-{uuid4()}"})
    body = {"id": str(uuid4()), "dataset_id": dataset["id"], "inputs": {"a": 1}}
    return Write("/examples", body, f"/examples/{body['id']}")


def create_examples(api: Api) -> Write:
    write = create_example(api)
    return Write("/examples/bulk", write.body, write.read_path, encode=lambda body: [body])


def change_example(api: Api) -> Write:
    write = create_example(api)
    create(api, write.path, write.body)
    return Write(write.read_path, {}, write.read_path, "PATCH")


def change_examples(api: Api) -> Write:
    write = change_example(api)
    body = {"id": write.path.rpartition("/")[2]}
    return Write("/examples/bulk", body, write.read_path, "PATCH", lambda body: [body])


def upload_example(api: Api) -> Write:
    """The multipart route, where inputs and outputs are parts of their own."""
    write = create_example(api)
    own = {"inputs": {"a": 1}}

    def encode(body: dict[str, Any]) -> list[tuple[str, Any]]:
        example_id = write.body["id"]
        payloads = [name for name in ("inputs", "outputs") if name in body]
        rest = {name: value for name, value in body.items() if name not in payloads}
        return [(example_id, rest), *((f"{example_id}.{name}", body[name]) for name in payloads)]

    path = f"/v1/platform/datasets/{write.body['dataset_id']}/examples"
    return Write(path, own, write.read_path, encode=encode)


def create_comparison(api: Api) -> Write:
    dataset = create(api, "/datasets", {"name": f"dataset-{uuid4()}"})["id"]
    experiments = [
        create(api, "/sessions", {"name": f"e-{uuid4()}", "reference_dataset_id": dataset})["id"]
        for _ in range(2)
    ]
    body = {"experiment_ids": experiments, "reference_dataset_id": dataset, "name": f"c-{uuid4()}"}
    return Write("/datasets/comparative", body, f"/datasets/{dataset}/comparative")


# Prompts


def create_prompt(api: Api) -> Write:
    handle = f"p-{uuid4()}"
    return Write("/repos", {"repo_handle": handle, "is_public": False}, f"/repos/-/{handle}")


def change_prompt(api: Api) -> Write:
    write = create_prompt(api)
    create(api, write.path, write.body)
    return Write(write.read_path, {}, write.read_path, "PATCH")


def create_commit(api: Api) -> Write:
    write = change_prompt(api)
    path = write.path.replace("/repos/", "/commits/")
    return Write(path, {"manifest": prompt_manifest()}, f"{path}/latest")


def list_commit(api: Api) -> Write:
    write = create_commit(api)
    return Write(write.path, write.body, f"{write.path}/")


def read_commit(**fields: Any) -> schemas.PromptCommit:
    return schemas.PromptCommit(**{"owner": "-", "repo": "p", **fields})


def read_listed_commit(**fields: Any) -> schemas.ListedPromptCommit:
    return schemas.ListedPromptCommit(**{"owner": "-", "repo": "p", **fields})


FEEDBACK = ("score", "value", "comment", "correction")
RUN = (
    *("inputs", "outputs", "extra", "events", "error", "serialized", "tags", "name"),
    *("reference_example_id", "run_type"),
)
DATASET = (
    *("description", "metadata", "inputs_schema_definition", "outputs_schema_definition"),
    "transformations",
)
EXAMPLE = ("inputs", "outputs", "metadata", "split")
PROMPT = ("description", "readme", "tags", "is_public")
ROUTES = [
    Route(
        "POST /feedback",
        (
            *(*FEEDBACK, "feedback_source", "extra", "feedback_group_id", "trace_id", "key"),
            "comparative_experiment_id",
        ),
        create_feedback,
        schemas.Feedback,
    ),
    Route("POST /feedback/eager", FEEDBACK[:2], create_feedback_eagerly, schemas.Feedback),
    Route("PATCH /feedback/{id}", FEEDBACK, change_feedback, schemas.Feedback),
    Route(
        "POST /runs/multipart, feedback",
        (*FEEDBACK, "feedback_source", "extra"),
        create_feedback_by_multipart,
        schemas.Feedback,
    ),
    Route(
        "POST /feedback/tokens/{id}",
        (*FEEDBACK, "metadata"),
        redeem_token,
        schemas.Feedback,
        rows=list,
    ),
    Route(
        "POST /datasets/upload-experiment, score",
        (*FEEDBACK, "feedback_source"),
        upload_score,
        schemas.Feedback,
        rows=list,
    ),
    Route(
        "POST /feedback-configs",
        ("feedback_config", "is_lower_score_better", "is_enforced"),
        create_config,
        schemas.FeedbackConfigSchema,
        rows=list,
    ),
    Route(
        "PATCH /feedback-configs",
        ("feedback_config", "add_categories", "remove_categories", "is_lower_score_better"),
        change_config,
        schemas.FeedbackConfigSchema,
        rows=list,
    ),
    Route(
        "POST /feedback/formulas",
        ("feedback_key", "aggregation_type", "formula_parts"),
        create_formula,
        schemas.FeedbackFormula,
        rows=list,
    ),
    Route(
        "PUT /feedback/formulas/{id}",
        ("feedback_key", "aggregation_type", "formula_parts"),
        change_formula,
        schemas.FeedbackFormula,
    ),
    Route("POST /runs", RUN, create_run, schemas.Run),
    Route("POST /runs/batch", RUN[:3], create_runs, schemas.Run),
    Route("POST /runs/multipart", RUN[:3], create_run_by_multipart, schemas.Run),
    Route("PATCH /runs/{id}", RUN[:5], change_run, schemas.Run),
    Route("POST /datasets", (*DATASET, "data_type", "extra"), create_dataset, schemas.Dataset),
    Route("PATCH /datasets/{id}", DATASET, change_dataset, schemas.Dataset),
    Route(
        "POST /sessions",
        ("description", "extra", "name", "end_time", "start_time"),
        create_project,
        schemas.TracerSession,
    ),
    Route(
        "PATCH /sessions/{id}",
        ("description", "extra", "end_time", "default_dataset_id"),
        change_project,
        schemas.TracerSession,
    ),
    Route("POST /examples", (*EXAMPLE, "source_run_id"), create_example, schemas.Example),
    Route("POST /examples/bulk", EXAMPLE[2:], create_examples, schemas.Example),
    Route("PATCH /examples/{id}", EXAMPLE, change_example, schemas.Example),
    Route("PATCH /examples/bulk", EXAMPLE[2:], change_examples, schemas.Example),
    Route("POST /v1/platform/datasets/{id}/examples", EXAMPLE, upload_example, schemas.Example),
    Route(
        "POST /datasets/comparative",
        ("name", "description", "extra"),
        create_comparison,
        schemas.ComparativeExperiment,
        rows=list,
    ),
    Route("POST /repos", PROMPT, create_prompt, schemas.Prompt, lambda content: [content["repo"]]),
    Route(
        "PATCH /repos/{owner}/{repo}",
        (*PROMPT, "is_archived"),
        change_prompt,
        schemas.Prompt,
        lambda content: [content["repo"]],
    ),
    Route("POST /commits", ("manifest", "description"), create_commit, read_commit),
    Route(
        "POST /commits, listed",
        ("description",),
        list_commit,
        read_listed_commit,
        lambda content: content["commits"],
    ),
]


REFUSALS = {422, 400}  # 400 for a manifest, with a code of its own


@pytest.mark.parametrize("route", ROUTES, ids=str)
def test_public_client_reads_what_a_write_accepts(api, workspace, route):
    for field in route.fields:
        write = route.prepare(api)
        before = api.get(write.read_path)
        for value in ODD_VALUES:
            response = write.send(api, {field: value})

            answer = api.get(write.read_path)
            if response.status_code in REFUSALS:
                assert field in response.json()["detail"].lower(), (value, response.content)
                assert (answer.status_code, answer.content) == (before.status_code, before.content)
                continue
            assert response.status_code in {200, 201, 202}, (field, value, response.content)
            rows = list(route.rows(answer.json()))
            assert rows, (field, value)
            for row in rows:
                route.model(**row)
            before = answer
            if write.method == "POST":  # each creates an object, the others change the same one
                write = route.prepare(api)
                before = api.get(write.read_path)


SPAN_ATTRIBUTES = (
    *("input.value", "output.value", "metadata", "tag.tags", "langsmith.span.tags"),
    *("langsmith.span.kind", "langsmith.metadata.thread_id", "langsmith.trace.name"),
    *("langsmith.usage_metadata", "llm.invocation_parameters", "gen_ai.prompt", "session.id"),
    *("gen_ai.usage.input_tokens", "gen_ai.usage.cost", "gen_ai.input.messages", "llm.tools"),
)


@pytest.mark.parametrize("name", SPAN_ATTRIBUTES)
def test_public_client_reads_what_a_span_becomes(api, exporter, workspace, name):
    values = [value for value in ODD_VALUES if value != 10**30]
    traces = [bytes(15) + bytes([number + 1]) for number in range(len(values))]
    spans = [
        span(trace=trace, attributes={name: value})
        for trace, value in zip(traces, values, strict=True)
    ]

    assert exporter.send(export(*spans).SerializeToString()).status_code == 200

    for trace in traces:
        row = api.get(f"/runs/{trace_run_id(trace)}").json()
        assert schemas.Run(**row).id == UUID(row["id"])


# langsmith-sdk#1924: a score of NaN became "no score" without a word.
@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e400", "1e101", "-1e300"])
def test_score_without_a_finite_number_is_refused_by_name(api, workspace, number):
    run_id = uuid4()
    body = f'{{"key": "k", "run_id": "{run_id}", "score": {number}}}'.encode()

    response = api.client.post("/feedback", body, content_type="application/json")

    assert response.status_code == 422
    assert "`score`" in response.json()["detail"]
    assert not Feedback.objects.for_workspace(workspace).exists()


@pytest.mark.parametrize("route", ROUTES[:6], ids=str)
@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e400"])
def test_score_of_each_route_is_finite(api, workspace, route, number):
    write = route.prepare(api)
    before = api.get(write.read_path)
    content = write.encode(write.body | {"score": 77_077})
    is_multipart = isinstance(content, list)
    body = multipart_body(*content) if is_multipart else json.dumps(content).encode()
    body = body.replace(b"77077", number.encode())

    response = api.client.generic(
        write.method,
        write.path,
        body,
        content_type=MULTIPART if is_multipart else "application/json",
    )

    detail = response.json()["detail"]
    assert response.status_code == 422
    # An upload is JSON without these words; its error has their position.
    assert "score" in detail or "malformed" in detail, detail
    answer = api.get(write.read_path)
    assert (answer.status_code, answer.content) == (before.status_code, before.content)


@pytest.mark.parametrize("field", ["value", "correction"])
@pytest.mark.parametrize("value", ["NaN", '{"a": [Infinity]}', '{"a": {"b": -1e999}}'])
def test_result_with_a_nan_is_refused_by_name(api, workspace, field, value):
    body = f'{{"key": "k", "run_id": "{uuid4()}", "{field}": {value}}}'.encode()

    response = api.client.post("/feedback", body, content_type="application/json")

    assert response.status_code == 422
    assert f"`{field}" in response.json()["detail"]
    assert not Feedback.objects.for_workspace(workspace).exists()
