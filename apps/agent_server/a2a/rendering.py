"""Tasks and events as clients see them.

They are written as A2A 1.0 defines them, whose schemas allow no further fields, and converted for
clients of 0.3.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any
from uuid import UUID, uuid5

from apps.agent_server.a2a.content import to_output_parts, to_question_parts
from apps.agent_server.statuses import TaskState
from apps.core.json import loads, loads_exact

JSONObject = dict[str, Any]
_LEGACY_ROLES = {"ROLE_USER": "user", "ROLE_AGENT": "agent"}


@dataclass(frozen=True)
class TaskView:
    """A task with the state that its newest run gives it; JSON columns as text."""

    id: UUID
    context_id: str
    thread_id: UUID
    run_id: UUID
    state: TaskState
    history: str
    output: str | None
    interrupts: str | None
    error: str | None
    updated_at: datetime

    @property
    def stored_chars(self) -> int:
        """The length of the JSON columns."""
        return sum(len(text or "") for text in (self.history, self.output, self.interrupts))

    @cached_property
    def pending_interrupts(self) -> list[JSONObject]:
        if self.state != TaskState.INPUT_REQUIRED:
            return []
        by_graph_task = loads_exact(self.interrupts or "{}")
        return [interrupt for members in by_graph_task.values() for interrupt in members]

    @cached_property
    def artifacts(self) -> list[JSONObject]:
        """The results of a completed task; an artifact's id never changes."""
        if self.state != TaskState.COMPLETED or self.output is None:
            return []
        parts = to_output_parts(loads_exact(self.output))
        return [{"artifactId": self.artifact_id, "name": "result", "parts": parts}] if parts else []

    @property
    def artifact_id(self) -> str:
        return str(uuid5(self.id, "artifact"))

    @property
    def status(self) -> JSONObject:
        status: JSONObject = {
            "state": f"TASK_STATE_{self.state.name}",
            "timestamp": format_time(self.updated_at),
        }
        parts = self._status_parts()
        if parts:
            status["message"] = self.with_ids(self.agent_message(parts))
        return status

    def _status_parts(self) -> list[JSONObject]:
        if self.state == TaskState.INPUT_REQUIRED:
            return to_question_parts(self.pending_interrupts)
        if self.state == TaskState.FAILED and self.error is not None:
            error = loads(self.error)
            return [{"text": f"{error.get('error')}: {error.get('message')}"}]
        return []

    def agent_message(self, parts: list[JSONObject]) -> JSONObject:
        """The agent's message at the end of the newest run; its id never changes."""
        return {
            "messageId": str(uuid5(self.run_id, "message")),
            "role": "ROLE_AGENT",
            "parts": parts,
        }

    def with_ids(self, message: JSONObject) -> JSONObject:
        return {**message, "contextId": self.context_id, "taskId": str(self.id)}

    def as_json(
        self, *, history_length: int | None = None, includes_artifacts: bool = True
    ) -> JSONObject:
        task: JSONObject = {
            "id": str(self.id),
            "contextId": self.context_id,
            "status": self.status,
        }
        if includes_artifacts and self.artifacts:
            task["artifacts"] = self.artifacts
        if history_length != 0:
            messages = self._messages()
            task["history"] = messages if history_length is None else messages[-history_length:]
        return task

    def _messages(self) -> list[JSONObject]:
        messages = [self.with_ids(message) for message in loads_exact(self.history)]
        answer = [part for artifact in self.artifacts for part in artifact["parts"]]
        if answer:
            messages.append(self.with_ids(self.agent_message(answer)))
        return messages

    # Events of a stream

    def status_update(self) -> JSONObject:
        ids = {"taskId": str(self.id), "contextId": self.context_id}
        return {"statusUpdate": {**ids, "status": self.status}}

    def artifact_update(
        self, parts: list[JSONObject], *, append: bool, is_last: bool
    ) -> JSONObject:
        artifact = {"artifactId": self.artifact_id, "name": "result", "parts": parts}
        return {
            "artifactUpdate": {
                "taskId": str(self.id),
                "contextId": self.context_id,
                "artifact": artifact,
                "append": append,
                "lastChunk": is_last,
            }
        }


def format_time(value: datetime) -> str:
    return value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


# A2A 0.3


def to_legacy_task(task: JSONObject) -> JSONObject:
    legacy = {
        "kind": "task",
        "id": task["id"],
        "contextId": task["contextId"],
        "status": _to_legacy_status(task["status"]),
    }
    if "artifacts" in task:
        legacy["artifacts"] = [_to_legacy_artifact(artifact) for artifact in task["artifacts"]]
    if "history" in task:
        legacy["history"] = [_to_legacy_message(message) for message in task["history"]]
    return legacy


def to_legacy_event(event: JSONObject) -> JSONObject:
    """The result of a stream event: a task, or an update with its kind."""
    if "task" in event:
        return to_legacy_task(event["task"])
    if "statusUpdate" in event:
        update = event["statusUpdate"]
        status = _to_legacy_status(update["status"])
        is_final = TaskState(status["state"]).is_final or status["state"] == "input-required"
        return {**update, "kind": "status-update", "status": status, "final": is_final}
    update = event["artifactUpdate"]
    artifact = _to_legacy_artifact(update["artifact"])
    return {**update, "kind": "artifact-update", "artifact": artifact}


def _to_legacy_status(status: JSONObject) -> JSONObject:
    state = TaskState[status["state"].removeprefix("TASK_STATE_")].value
    legacy = {**status, "state": state}
    if "message" in status:
        legacy["message"] = _to_legacy_message(status["message"])
    return legacy


def _to_legacy_artifact(artifact: JSONObject) -> JSONObject:
    return {**artifact, "parts": _to_legacy_parts(artifact["parts"])}


def _to_legacy_message(message: JSONObject) -> JSONObject:
    role, parts = _LEGACY_ROLES[message["role"]], _to_legacy_parts(message["parts"])
    return {**message, "kind": "message", "role": role, "parts": parts}


def _to_legacy_parts(parts: Iterable[JSONObject]) -> list[JSONObject]:
    return [_to_legacy_part(part) for part in parts]


def _to_legacy_part(part: JSONObject) -> JSONObject:
    metadata = {"metadata": part["metadata"]} if "metadata" in part else {}
    if "text" in part:
        return {"kind": "text", "text": part["text"], **metadata}
    if "data" in part:
        data = part["data"]
        # In 0.3 the data is an object.
        data = data if isinstance(data, dict) else {"value": data}
        return {"kind": "data", "data": data, **metadata}
    names = {"raw": "bytes", "url": "uri", "mediaType": "mimeType", "filename": "name"}
    file = {old: part[new] for new, old in names.items() if new in part}
    return {"kind": "file", "file": file, **metadata}
