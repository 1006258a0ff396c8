"""LangGraph's ReAct agent, whose tool calls are streamed in the `tools` mode."""

from __future__ import annotations

import warnings

from langgraph.prebuilt import create_react_agent
from parrot import Parrot
from toolbox import TOOLS

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    graph = create_react_agent(Parrot(), TOOLS, prompt="You are terse.")
