"""A conversation with a graph on one thread, through the public client."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from langgraph_sdk.client import SyncLangGraphClient


@dataclass
class Conversation:
    client: SyncLangGraphClient
    graph: str
    thread: str

    def begin(self, **values: Any) -> Any:
        """Run the graph with this input and return its final state."""
        return self.run(input=values)

    def say(self, text: str, **options: Any) -> list[tuple[str, str]]:
        """Send a user message; return all messages of the thread as (type, content)."""
        values = {"messages": [{"role": "user", "content": text}]}
        return message_texts(self.run(input=values, **options))

    def answer(self, answer: Any) -> Any:
        """Resume the interrupted graph with an answer."""
        return self.run(command={"resume": answer})

    def run(self, **options: Any) -> Any:
        return self.client.runs.wait(self.thread, self.graph, **options)

    def stream(self, *modes: str, **options: Any) -> list[tuple[str, Any]]:
        """Return the events except `metadata` and `end`.

        Task ids are removed from the event names.
        """
        parts = self.client.runs.stream(self.thread, self.graph, stream_mode=list(modes), **options)
        return [
            ("|".join(label.partition(":")[0] for label in part.event.split("|")), part.data)
            for part in parts
            if part.event not in {"metadata", "end"}
        ]

    @property
    def state(self) -> Any:
        return self.client.threads.get_state(self.thread)

    @property
    def status(self) -> str:
        return self.client.threads.get(self.thread)["status"]

    def history(self) -> list[Any]:
        return self.client.threads.get_history(self.thread, limit=100)


def interrupt_values(result: Any) -> list[Any]:
    """Return the values of the interrupts in a result of `wait`."""
    return [entry["value"] for entry in result["__interrupt__"]]


def message_texts(values: Any) -> list[tuple[str, str]]:
    return [(message["type"], message["content"]) for message in values["messages"]]
