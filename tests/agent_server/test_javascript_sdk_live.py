"""The public JavaScript client against the whole platform and its sample agent, on Node."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

from config.env import BASE_DIR
from tests.compatibility.chosen_clients import node_modules, place_script
from tests.required_tools import skip_now

SCRIPT = Path(__file__).with_name("javascript_sdk.mjs")


def test_javascript_client_script_succeeds(sample_agent):
    node = shutil.which("node")
    if node is None or not (node_modules() / "@langchain/langgraph-sdk").exists():
        skip_now("The JavaScript client is not installed: run `npm install`.")

    completed = subprocess.run(
        [node, str(place_script(SCRIPT))],
        env={**os.environ, "AGENT_URL": sample_agent.url, "API_KEY": sample_agent.api_key},
        cwd=BASE_DIR,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert completed.returncode == 0, completed.stderr
    facts = json.loads(completed.stdout)
    assert facts["events"][0] == "metadata"
    assert facts["events"][-1] == "end"
    assert {"updates", "messages/metadata", "messages/partial"} <= set(facts["events"])
    assert facts["created"] == facts["runId"]
    assert "85" in facts["answer"]
    assert facts["joined"] == facts["state"]
    assert facts["prompts"] == facts["inOrder"]
    assert sorted(facts["prompts"]) == sorted(f"Line {n}" for n in range(20))
    assert facts["resumed"] == facts["expected"]
    assert facts["interrupts"] == 1
    assert facts["approved"] == "idle"
    assert facts["stateless"] == "ai"
