"""An installation whose playground has a process of its own, which survives a kill."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from contextlib import closing

import psutil
import pytest

from apps.core.instance import Instance
from tests.crash.test_experiments import Platform, read_roots
from tests.crash.test_playground import KEY, PROMPT, echo, make_dataset, start
from tests.installation import wait_until
from tests.providers.fake_provider import FakeProvider, Reply

pytestmark = pytest.mark.slow


def read_json(url):
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def is_connected(process: psutil.Process, provider: FakeProvider) -> bool:
    port = int(provider.url.rpartition(":")[2])
    connections = process.net_connections("tcp")
    return any(connection.raddr and connection.raddr.port == port for connection in connections)


def test_process_of_its_own_makes_the_calls_of_the_playground(install):
    installation = install(PLAYGROUND_PROCESSES="1", PROVIDER_NETWORKS="127.0.0.0/8")
    installation.start()
    installation.wait_until_output_contains("Slipway is ready")
    facts = installation.bootstrap()
    platform = Platform(installation, facts["api_key"])
    with closing(platform.http), FakeProvider() as provider:
        secrets = [
            {"key": "OPENAI_API_KEY", "value": KEY},
            {"key": "OPENAI_BASE_URL", "value": provider.url},
        ]
        platform.request("POST", "/workspaces/current/secrets", json=secrets)
        body = {"messages": PROMPT, "inputs": {"question": "Why?"}}

        assert read_json(f"{installation.url}/readyz")[1]["parts"]["playground"] == "ok"
        info = read_json(f"{installation.url}/info")[1]
        assert info["components"]["playground"] == {"processes": 1}
        socket = Instance(installation.data_dir).playground_socket
        assert socket.stat().st_mode & 0o077 == 0

        # By hand: refusals pass through, too.
        provider.answer = Reply("It is so.")
        answer = platform.http.post("/prompts/invoke_prompt", json=body)
        assert (answer.status_code, answer.json()["content"]) == (200, "It is so.")
        refused = platform.http.post("/prompts/invoke_prompt", json={"messages": 1})
        assert (refused.status_code, refused.json()["code"]) == (422, "bad_playground_setting")
        anonymous = platform.http.post(
            "/prompts/invoke_prompt", json=body, headers={"X-Api-Key": ""}
        )
        assert anonymous.status_code == 401

        # The open calls of an experiment belong to this process, and to its successor.
        process = installation.require_process("playground")
        others = [installation.require_process("worker")]
        provider.answer = Reply("word " * 40, seconds_per_word=0.1)
        job = start(platform, make_dataset(platform, 6), 0)
        wait_until(lambda: is_connected(process, provider), "a call")
        assert not any(is_connected(other, provider) for other in others)
        provider.answer = echo
        installation.kill("playground")
        wait_until(lambda: installation.is_back("playground", process), "the successor")

        def has_ended() -> bool:
            row = platform.request("GET", f"/experiment-jobs/{job['id']}").json()
            return bool(row["ended_at"])

        wait_until(has_ended, "the end of the experiment")
        runs = read_roots(platform, job["experiment_id"])
        assert sorted(run["outputs"]["output"] for run in runs) == [
            f"Answer {number}" for number in range(6)
        ]
