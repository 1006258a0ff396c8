"""The public `langsmith` client against the running platform."""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest
from langsmith import Client, traceable
from langsmith.run_helpers import get_current_run_tree, tracing_context
from langsmith.schemas import Attachment, Run
from langsmith.utils import LangSmithAuthError, LangSmithError, LangSmithNotFoundError

from tests.live_client import client

__all__ = ["client"]

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
PICTURE = b"\x89PNG\r\n\x1a\n\x00\xff"


@pytest.fixture
def project() -> str:
    return f"sdk {uuid.uuid4()}"


def usage(tokens: int) -> dict[str, object]:
    return {
        "input_tokens": tokens,
        "output_tokens": 1,
        "total_tokens": tokens + 1,
        "input_token_details": {"cache_read": 2},
    }


@traceable(run_type="llm", metadata={"ls_provider": "test", "ls_model_name": "fake-1"})
def ask_model(question: str) -> dict[str, object]:
    return {"answer": f"to {question}", "usage_metadata": usage(10)}


@traceable(run_type="tool")
def broken_tool(question: str) -> str:
    raise ValueError(f"cannot look up {question}")


@traceable(run_type="chain")
def research(question: str) -> str:
    try:
        broken_tool(question)
    except ValueError:
        return str(ask_model(question)["answer"])
    return "unreachable"


@traceable(run_type="chain", tags=["live"])
def agent(question: str, picture: Attachment) -> tuple[str, str]:
    run = get_current_run_tree()
    assert run is not None
    return str(run.id), research(question)


def send_trace(client: Client, project: str) -> str:
    picture = Attachment(mime_type="image/png", data=PICTURE)
    with tracing_context(enabled=True, client=client, project_name=project):
        run_id, _ = agent("why?", picture)
    client.flush()
    return run_id


def to_tree(run: Run) -> dict[str, object]:
    return {
        "name": run.name,
        "type": run.run_type,
        "status": run.status,
        "inputs": run.inputs,
        "children": [to_tree(child) for child in run.child_runs or ()],
    }


def test_a_nested_function_is_read_back_as_the_same_tree(client, project):
    run_id = send_trace(client, project)

    run = client.read_run(run_id, load_child_runs=True)

    assert to_tree(run) == {
        "name": "agent",
        "type": "chain",
        "status": "success",
        "inputs": {"question": "why?"},
        "children": [
            {
                "name": "research",
                "type": "chain",
                "status": "success",
                "inputs": {"question": "why?"},
                "children": [
                    {
                        "name": "broken_tool",
                        "type": "tool",
                        "status": "error",
                        "inputs": {"question": "why?"},
                        "children": [],
                    },
                    {
                        "name": "ask_model",
                        "type": "llm",
                        "status": "success",
                        "inputs": {"question": "why?"},
                        "children": [],
                    },
                ],
            }
        ],
    }
    assert run.total_tokens == 11
    assert run.tags == ["live"]
    (step,) = run.child_runs
    tool, model = step.child_runs
    assert tool.error.startswith("ValueError('cannot look up why?')")
    assert model.outputs == {"answer": "to why?", "usage_metadata": usage(10)}
    assert model.extra["metadata"]["ls_model_name"] == "fake-1"


def test_an_attachment_is_read_back_byte_for_byte(client, project):
    run = client.read_run(send_trace(client, project))

    attachment = run.attachments["picture"]
    assert attachment["mime_type"] == "image/png"
    assert attachment["reader"].read() == PICTURE


def test_runs_are_listed_by_project_name(client, project):
    send_trace(client, project)

    assert [run.name for run in client.list_runs(project_name=project, is_root=True)] == ["agent"]
    assert [run.name for run in client.list_runs(project_name=project, error=True)] == [
        "broken_tool"
    ]
    assert len(list(client.list_runs(project_name=project))) == 4
    assert client.read_project(project_name=project).run_count == 4


def test_a_list_longer_than_a_page_is_complete(client, project):
    @traceable
    def many() -> None:
        for n in range(119):
            traceable(lambda n: n, name=f"step {n}")(n)

    with tracing_context(enabled=True, client=client, project_name=project):
        many()
    client.flush()

    runs = list(client.list_runs(project_name=project))
    assert len(runs) == len({run.id for run in runs}) == 120
    assert len(list(client.list_runs(project_name=project, limit=110))) == 110


def test_runs_written_one_by_one_are_read(client, project):
    run_id, child_id = uuid.uuid4(), uuid.uuid4()
    client.create_run("by hand", {"a": 1}, "chain", id=run_id, project_name=project)
    client.create_run(
        "below", {"b": 2}, "tool", id=child_id, parent_run_id=run_id, project_name=project
    )
    client.update_run(run_id, outputs={"c": 3})

    run = client.read_run(run_id)
    assert (run.inputs, run.outputs, run.trace_id) == ({"a": 1}, {"c": 3}, run_id)
    assert client.read_run(child_id).parent_run_ids == [run_id]


def test_several_threads_write_one_project(client, project):
    with ThreadPoolExecutor(4) as pool:
        run_ids = list(pool.map(lambda _: send_trace(client, project), range(8)))

    assert {str(run.id) for run in client.list_runs(project_name=project, is_root=True)} == set(
        run_ids
    )


def test_a_missing_run_raises_the_not_found_error_of_the_client(client):
    with pytest.raises(LangSmithNotFoundError):
        client.read_run(uuid.uuid4())
    with pytest.raises(LangSmithNotFoundError):
        client.read_project(project_name=f"none {uuid.uuid4()}")
    assert not client.has_project(f"none {uuid.uuid4()}")


def test_a_wrong_key_raises_the_auth_error_of_the_client(live):
    other_client = Client(api_url=live.api_url, api_key="slip_wrong", auto_batch_tracing=False)

    assert other_client.info.batch_ingest_config is not None
    with pytest.raises(LangSmithAuthError):
        other_client.read_run(uuid.uuid4())


def test_projects_are_created_changed_and_deleted(client, project):
    row = client.create_project(project, metadata={"a": 1})
    client.update_project(row.id, description="changed")

    assert client.read_project(project_id=row.id).description == "changed"
    assert project in [listed.name for listed in client.list_projects(name=project)]
    with pytest.raises(LangSmithError):
        client.create_project(project)
    assert client.create_project(project, upsert=True).id == row.id
    client.delete_project(project_id=row.id)
    assert not client.has_project(project)


def test_the_url_of_a_run_is_the_address_of_its_page(client, live, project):
    run = client.read_run(send_trace(client, project))

    url = client.get_run_url(run=run)

    assert f"/o/{live.workspace_id}/projects/p/{run.session_id}/r/{run.id}" in url
    assert run.app_path.startswith(f"/o/{live.workspace_id}/projects/p/{run.session_id}/r/")
