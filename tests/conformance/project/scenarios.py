"""What the agent of the A2A kit does, by the prefix of a message's id.

The kit names its scenarios in the ids of its messages. The graph and the reference server, which
is made of the A2A SDK, both behave as this table says.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

FILE = {"mediaType": "text/plain", "filename": "output.txt"}


@dataclass(frozen=True)
class KitScenario:
    """An outcome and the parts of the artifact, as A2A 1.0 writes them."""

    parts: tuple[dict[str, Any], ...] = ()
    outcome: Literal["completed", "input-required", "message"] = "completed"
    seconds: float = 0
    """The time that the agent works."""


def _text(text: str) -> KitScenario:
    return KitScenario(({"text": text},))


SCENARIOS = {
    "tck-complete-task": _text("Hello from TCK"),
    "tck-artifact-text": _text("Generated text content"),
    "tck-artifact-file-url": KitScenario(({"url": "https://example.com/output.txt", **FILE},)),
    "tck-artifact-file": KitScenario(({"raw": "dGNr", **FILE},)),
    "tck-artifact-data": KitScenario(({"data": {"key": "value", "count": 42}},)),
    "tck-message-response": KitScenario(({"text": "Direct message response"},), "message"),
    "tck-input-required": KitScenario(outcome="input-required"),
    "tck-stream-001": _text("Stream hello from TCK"),
    "tck-stream-002": KitScenario(),
    "tck-stream-003": _text("Stream task lifecycle"),
    "tck-stream-ordering-001": _text("Ordered output"),
    "tck-stream-artifact-text": _text("Streamed text content"),
    "tck-stream-artifact-file": KitScenario(({"raw": "dGNr", **FILE},)),
    "tck-stream-artifact-chunked": KitScenario(({"text": "chunk-1 "}, {"text": "chunk-2"})),
    "test-resubscribe-message-id": KitScenario(({"text": "Done"},), seconds=4),
}
ANSWER_LATER = KitScenario(({"text": "Hello from the agent"},), seconds=4)
"""The kit of A2A 0.3 looks for tasks that are working."""
ASKS_AGAIN = "TCK history message"
"""The beginning of answers that the agent follows with another question."""


def find(message_id: str) -> KitScenario:
    """The scenario with the longest prefix of the id."""
    prefixes = [prefix for prefix in SCENARIOS if message_id.startswith(prefix)]
    if prefixes:
        return SCENARIOS[max(prefixes, key=len)]
    is_of_kit = message_id.startswith("tck-")
    return _text("Unknown scenario") if is_of_kit else ANSWER_LATER
