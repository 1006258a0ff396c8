"""What a host makes of a repository."""

from __future__ import annotations

import time

from tests.child_output import read_line

STATE = """
import contextlib
from typing import Annotated
from dataclasses import dataclass
import operator
from typing_extensions import TypedDict
from langchain_core.runnables import RunnableConfig
from langgraph.func import entrypoint
from langgraph.graph import END, START, StateGraph
from langgraph_sdk.runtime import ServerRuntime

class State(TypedDict, total=False):
    said: Annotated[list[str], operator.add]

def saying(*words):
    graph = StateGraph(State).add_node("say", lambda state: {"said": list(words)})
    return graph.add_edge(START, "say")
"""

KINDS = (
    STATE
    + """
builder = saying("builder")
compiled = saying("compiled").compile()

@entrypoint()
async def function(state: dict) -> dict:
    return {"said": ["function"]}

def plain():
    return saying("plain")

def configured(config: RunnableConfig):
    return saying(config["configurable"]["voice"]).compile()

async def awaited(config):
    return saying("awaited").compile()

def by_runtime(runtime: ServerRuntime):
    return saying(runtime.access_context, str(runtime.execution_runtime is not None))

def by_both(config: RunnableConfig, runtime: "ServerRuntime[dict]"):
    return saying(runtime.access_context, config["configurable"]["voice"])

@contextlib.asynccontextmanager
async def opened(config: RunnableConfig):
    print("opened", flush=True)
    yield saying("opened").compile()
    print("closed", flush=True)
"""
)


def test_a_graph_may_be_given_in_every_way_that_langgraph_knows(host):
    said = {
        "builder": ["builder"],
        "compiled": ["compiled"],
        "function": ["function"],
        "plain": ["plain"],
        "configured": ["soft"],
        "awaited": ["awaited"],
        "by_runtime": ["threads.create_run", "True"],
        "by_both": ["threads.create_run", "soft"],
        "opened": ["opened"],
    }
    here = host({"agent.py": KINDS}, graphs={name: f"./agent.py:{name}" for name in said})
    asked = {"input": {"said": []}, "config": {"configurable": {"voice": "soft"}}}

    answers = {name: here.run(name, asked)[0][-1][1]["said"] for name in said}

    assert here.hello["problems"] == {}
    assert answers == said


def test_files_of_packages_may_import_relatively_and_modules_by_name(host):
    here = host(
        {
            "src/pack/__init__.py": "",
            "src/pack/words.py": "WORD = 'relative'",
            "src/pack/agent.py": STATE + "from .words import WORD\ngraph = saying(WORD)",
            "other.py": STATE + "from pack.words import WORD\ngraph = saying(WORD, 'absolute')",
        },
        dependencies=["./src", "."],
        graphs={
            "a": {"path": "./src/pack/agent.py:graph", "description": "A."},
            "b": "other:graph",
        },
    )

    said = [here.run(name, {"input": {"said": []}})[0][-1][1]["said"] for name in ("a", "b")]

    assert said == [["relative"], ["relative", "absolute"]]
    assert here.hello["graphs"] == {"a": "A.", "b": None}


def test_what_is_wrong_with_a_graph_is_said_in_words_of_its_author(host):
    here = host(
        {
            "broken.py": "import json\n\ndef make():\n    return missing_name\n\ngraph = make()",
            "fine.py": STATE + "graph = saying('x')\nnumber = 3",
            "needs.py": "import a_package_that_is_not_there",
            "odd.py": STATE + "def graph(one, two): ...",
            "syntax.py": "graph = (",
        },
        graphs={
            "broken": "./broken.py:graph",
            "absent": "./absent.py:graph",
            "nameless": "./fine.py:other",
            "number": "./fine.py:number",
            "outside": "../../etc/hosts.py:x",
            "needs": "./needs.py:graph",
            "odd": "./odd.py:graph",
            "script": "./agent.ts:graph",
            "shapeless": "fine.py",
            "syntax": "./syntax.py:graph",
            "fine": "./fine.py:graph",
        },
    )

    problems = here.hello["problems"]

    assert set(here.hello["graphs"]) == {"fine"}
    assert problems["broken"].splitlines()[0] == (
        "Graph `broken` (`./broken.py:graph`) could not be imported: "
        "NameError: name 'missing_name' is not defined"
    )
    assert "line 4, in make" in problems["broken"]
    assert "graph_host" not in problems["broken"]
    assert problems["absent"] == "Graph `absent`: there is no file `./absent.py` in the repository."
    assert problems["nameless"].startswith("Graph `nameless`: `./fine.py` has no `other`.")
    assert problems["number"] == (
        "Graph `number` is a int; it must be a compiled graph, a graph builder, "
        "or a function that returns one."
    )
    assert problems["outside"].endswith("is outside the repository.")
    assert "ModuleNotFoundError: No module named 'a_package_that_is_not_there'" in problems["needs"]
    assert "takes `two`" in problems["odd"]
    assert problems["script"].startswith("Graph `script`: there is no file")
    assert "must be `./file.py:name`" in problems["shapeless"]
    assert "SyntaxError" in problems["syntax"]


def test_a_project_without_its_file_says_so(host):
    here = host({"langgraph.json": "[]"})

    assert here.hello["problem"] == "`langgraph.json` must be an object with an object `graphs`."


def test_variables_come_from_the_project_unless_the_deployment_sets_them(host):
    here = host(
        {
            "my.env": "# a comment\nexport WORD='from file'\nPATH=/never\nEMPTY=\n",
            "agent.py": STATE + "import os\ngraph = saying(os.environ['WORD'], os.environ['PATH'])",
        },
        graphs={"a": "./agent.py:graph"},
        env="my.env",
    )

    word, path = here.run("a", {"input": {"said": []}})[0][-1][1]["said"]

    assert word == "from file"
    assert path != "/never"


def test_a_graph_is_described_with_schemas_and_drawing(host):
    code = (
        STATE
        + """
@dataclass
class Context:
    tone: str = "calm"

def pick(state): return "b"

builder = StateGraph(State, context_schema=Context)
builder.add_node("a", lambda s: s)
builder.add_node("b", lambda s: s)
builder.add_edge(START, "a")
builder.add_conditional_edges("a", pick, ["b", END])
graph = builder.compile()
"""
    )
    here = host({"agent.py": code}, graphs={"a": "./agent.py:graph"})

    found = here.ask("a", "describe")

    assert found["schemas"]["context_schema"]["properties"]["tone"]["default"] == "calm"
    assert found["schemas"]["config_schema"] == found["schemas"]["context_schema"]
    assert list(found["schemas"]["state_schema"]["properties"]) == ["said"]
    assert [node["id"] for node in found["drawing"]["nodes"]] == ["__start__", "a", "b", "__end__"]
    assert {"source": "a", "target": "b", "conditional": True} in found["drawing"]["edges"]


def test_a_host_whose_code_blocks_the_loop_dies_with_its_worker(host):
    code = (
        STATE
        + """
import time
async def sleep(state):
    print("sleeping", flush=True)
    time.sleep(60)
graph = StateGraph(State).add_node("sleep", sleep).add_edge(START, "sleep")
"""
    )
    here = host({"agent.py": code}, graphs={"a": "./agent.py:graph"})
    here.send(
        "start", 1, {
            "run_id": "01a20015-3670-72a7-a4f2-e23a7bdb5298", "thread_id": "t", "graph_id": "a",
            "assistant_id": "x", "attempt": 1, "metadata": {}, "head": None,
            "kwargs": b'{"input": {"said": []}}',
        },
    )  # fmt: skip
    assert read_line(here.process.stdout) == b"sleeping\n"

    begin = time.monotonic()
    here.socket.close()

    assert here.process.wait(30) == 0
    assert time.monotonic() - begin < 30
