"""What a coding agent does with the prompt of `/start` in three public repositories.

Each recipe makes the changes that the prompt asks for and runs the program once. The model is a
local server that answers like OpenAI.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Edit:
    """A change of one file: `old` occurs in it once."""

    path: str
    old: str
    new: str


@dataclass(frozen=True)
class Recipe:
    name: str
    repository: str
    """Owner and name on GitHub."""
    install: Sequence[Sequence[str]]
    """Commands; `python` and `npm` are those of the checkout."""
    run: Sequence[str]
    edits: Sequence[Edit] = ()
    folder: str = "."
    """The folder of the program, with its `.env`."""
    variables: dict[str, str] = field(default_factory=dict)
    """Variables of the program that are not about tracing."""


_CHAT = """\
import app
client = app.app.test_client()
client.post("/chat", json={"message": "What is a trace?"})
print(client.get("/stream").text)
"""
_REACT = """\
import asyncio
from react_agent import graph
from react_agent.context import Context
question = {"messages": [("user", "What is a trace?")]}
print(asyncio.run(graph.ainvoke(question, context=Context()))["messages"][-1].content)
"""

RECIPES = (
    Recipe(
        name="OpenAI client, Python",
        repository="openai/openai-quickstart-python",
        install=[
            ["python", "-m", "pip", "install", "-q", "-r", "requirements.txt", "langsmith"],
            # The repository pins a version that lacks names which the client imports.
            ["python", "-m", "pip", "install", "-q", "--upgrade", "typing-extensions"],
        ],
        edits=[
            Edit(
                "examples/chat-basic/app.py",
                "client = openai.OpenAI()",
                "from langsmith.wrappers import wrap_openai\n\n"
                "client = wrap_openai(openai.OpenAI())",
            )
        ],
        folder="examples/chat-basic",
        run=["python", "-c", _CHAT],
    ),
    Recipe(
        name="LangGraph",
        repository="langchain-ai/react-agent",
        install=[["python", "-m", "pip", "install", "-q", "."]],
        run=["python", "-c", _REACT],
        variables={"MODEL": "openai/gpt-4.1-mini", "TAVILY_API_KEY": "unused"},
    ),
    Recipe(
        name="OpenAI client, JavaScript",
        repository="openai/openai-quickstart-node",
        install=[["npm", "install", "--no-audit", "--no-fund", "--silent", "langsmith"]],
        edits=[
            Edit(
                "chat_completions/index.js",
                "const openai = new OpenAI();",
                'import { wrapOpenAI } from "langsmith/wrappers";\n'
                "const openai = wrapOpenAI(new OpenAI());",
            )
        ],
        run=["node", "chat_completions/index.js"],
    ),
)
