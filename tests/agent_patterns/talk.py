"""A conversation with a graph on one thread, as the public client has it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from langgraph_sdk.client import SyncLangGraphClient


@dataclass
class Talk:
    client: SyncLangGraphClient
    graph: str
    thread: str

    def begin(self, **values: Any) -> Any:
        """Run with this input; the answer is what `wait` answers."""
        return self.run(input=values)

    def say(self, text: str, **options: Any) -> list[tuple[str, str]]:
        """The messages after this one was said, each with who said it."""
        said = {"messages": [{"role": "user", "content": text}]}
        return spoken(self.run(input=said, **options))

    def answer(self, answer: Any) -> Any:
        """Resume with an answer to what was asked."""
        return self.run(command={"resume": answer})

    def run(self, **options: Any) -> Any:
        return self.client.runs.wait(self.thread, self.graph, **options)

    def stream(self, *modes: str, **options: Any) -> list[tuple[str, Any]]:
        """The events, without the one that names the run and the one that ends it.

        Ids of tasks are taken out of the names.
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


def questions(answer: Any) -> list[Any]:
    """What was asked in that answer of `wait`."""
    return [entry["value"] for entry in answer["__interrupt__"]]


def spoken(values: Any) -> list[tuple[str, str]]:
    return [(message["type"], message["content"]) for message in values["messages"]]
