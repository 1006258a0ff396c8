"""Ready-to-run calls of a served agent, for its deployment's page."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from typing import Any

from apps.core.python_literals import python_literal
from apps.deployments.models import Deployment
from apps.deployments.routes import ServingConfig, agent_url

_EXAMPLES: dict[str, Any] = {
    "array": [],
    "boolean": True,
    "integer": 1,
    "number": 1,
    "object": {},
    "string": "Hello",
}

_PYTHON = """\
from langgraph_sdk import get_sync_client

client = get_sync_client(url={url}, {credential})
thread = client.threads.create()
for part in client.runs.stream(
    thread["thread_id"],
    {graph},
    input={input},
    stream_mode="updates",
):
    print(part.event, part.data)"""

_JAVASCRIPT = """\
import {{ Client }} from "@langchain/langgraph-sdk";

const client = new Client({{ apiUrl: {url}, {credential} }});
const thread = await client.threads.create();
const stream = client.runs.stream(thread.thread_id, {graph}, {{
  input: {input},
  streamMode: "updates",
}});
for await (const part of stream) console.log(part.event, part.data);"""

_REACT = """\
import {{ useStream }} from "@langchain/langgraph-sdk/react";

export function Chat() {{
  const stream = useStream({{
    apiUrl: {url},
    {credential},
    assistantId: {graph},
    messagesKey: "messages",
  }});
  const send = (text) =>
    stream.submit({{ messages: [{{ type: "human", content: text }}] }});
  return (
    <form onSubmit={{(event) => {{
      event.preventDefault();
      send(new FormData(event.target).get("text"));
    }}}}>
      {{stream.messages.map((message) => <p key={{message.id}}>{{String(message.content)}}</p>)}}
      <input name="text" />
    </form>
  );
}}"""

_CURL = """\
curl --no-buffer {url} \\
  --header {credential} \\
  --header 'Content-Type: application/json' \\
  --data {body}"""


@dataclass(frozen=True)
class CallSnippets:
    """The same call in three languages, and the address of the agent's API documentation."""

    python: str
    javascript: str
    curl: str
    docs_url: str
    """Empty if the project disables the page."""
    has_own_auth: bool
    """Whether the project authenticates its callers, so that keys of the platform may not work."""
    react: str
    """A component that streams the agent's replies, with the hook of the SDK."""
    url: str
    graph_id: str
    takes_messages: bool
    """Whether the graph's input has messages, so that a text can be sent to it."""
    runs_url: str
    """The beginning of the address of a run's trace, which its id completes."""


def get_call_snippets(deployment: Deployment, *, key: str = "<your key>") -> CallSnippets | None:
    """Return the calls of the first graph of the active revision, if there is one."""
    revision = deployment.active_revision
    graph = revision.graphs.in_order().first() if revision else None
    if revision is None or graph is None:
        return None
    serving = ServingConfig.from_revision(revision.config or {}, revision.facts)
    url = agent_url(deployment.slug)
    has_own_auth = serving.auth is not None
    header = "Authorization: Bearer <your token>" if has_own_auth else f"X-Api-Key: {key}"
    name, _, value = header.partition(": ")
    graph_id = json.dumps(graph.graph_id)
    example = example_input((graph.schemas or {}).get("input_schema") or {})
    return CallSnippets(
        python=_PYTHON.format(
            url=json.dumps(url),
            credential=f"headers={{{json.dumps(name)}: {json.dumps(value)}}}"
            if has_own_auth
            else f"api_key={json.dumps(value)}",
            graph=graph_id,
            input=python_literal(example),
        ),
        javascript=_JAVASCRIPT.format(
            url=json.dumps(url),
            credential=f"defaultHeaders: {{ {json.dumps(name)}: {json.dumps(value)} }}"
            if has_own_auth
            else f"apiKey: {json.dumps(value)}",
            graph=graph_id,
            input=json.dumps(example),
        ),
        curl=_CURL.format(
            url=shlex.quote(f"{url}/runs/stream"),
            credential=shlex.quote(header),
            body=shlex.quote(
                json.dumps(
                    {
                        "assistant_id": graph.graph_id,
                        "input": example,
                        "stream_mode": ["updates"],
                    }
                )
            ),
        ),
        react=_REACT.format(
            url=json.dumps(url),
            credential=f"defaultHeaders: {{ {json.dumps(name)}: {json.dumps(value)} }}"
            if has_own_auth
            else f"apiKey: {json.dumps(value)}",
            graph=graph_id,
        ),
        url=url,
        graph_id=graph.graph_id,
        takes_messages="messages" in example,
        runs_url=f"/o/{deployment.workspace_id}/r/",
        docs_url="" if serving.http.disable_meta else f"{url}/docs",
        has_own_auth=has_own_auth,
    )


def example_input(schema: dict[str, Any]) -> Any:
    """Return an input that fits the graph's input schema: a message, or one value per field."""
    properties = schema.get("properties")
    if not isinstance(properties, dict) or not properties:
        return {}
    if "messages" in properties:
        return {"messages": [{"role": "user", "content": "Hello"}]}
    required = schema.get("required")
    names = required if isinstance(required, list) and required else list(properties)[:1]
    return {name: _example_value(properties.get(name)) for name in names if isinstance(name, str)}


def _example_value(schema: Any) -> Any:
    if not isinstance(schema, dict):
        return None
    if "default" in schema:
        return schema["default"]
    if isinstance(schema.get("enum"), list) and schema["enum"]:
        return schema["enum"][0]
    kind = schema.get("type")
    return _EXAMPLES.get(kind) if isinstance(kind, str) else None
