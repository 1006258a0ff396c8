"""A ReAct agent: the model calls tools until it can answer; one tool waits for a person."""

from __future__ import annotations

import warnings

from langgraph.prebuilt import create_react_agent
from parrot import Parrot
from toolbox import TOOLS

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    graph = create_react_agent(Parrot(), TOOLS, prompt="You book travel.")
