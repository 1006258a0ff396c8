"""A deterministic chat model: its answer depends on the last message alone.

- `words 100` answers `word0 word1 … word99`, one token per word; `words 100 every 0.02` pauses.
- `call multiply {"a": 6, "b": 7}; weather {"city": "Oslo"}` calls tools, all in one message.
- After tool results it answers `Tool results: 42 | sunny`.
- Any other message is repeated as `You wrote: …`.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, ToolMessage
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable

_WORDS = re.compile(r"words (\d+)(?: every ([\d.]+))?")


def build_chunks(messages: Sequence[BaseMessage]) -> tuple[list[AIMessageChunk], float]:
    """Return the streamed chunks of the answer, and the seconds before each chunk."""
    last, pause = messages[-1], 0.0
    if isinstance(last, ToolMessage):
        results = []
        for message in reversed(messages):
            if not isinstance(message, ToolMessage):
                break
            results.insert(0, str(message.content))
        text = "Tool results: " + " | ".join(results)
    elif (prompt := str(last.text)).startswith("call "):
        return [_build_tool_calls(prompt.removeprefix("call "))], pause
    elif match := _WORDS.fullmatch(prompt):
        text = " ".join(f"word{number}" for number in range(int(match[1])))
        pause = float(match[2] or 0)
    else:
        text = f"You wrote: {prompt}"
    return [AIMessageChunk(content=word) for word in re.findall(r"\s*\S+", text)], pause


def _build_tool_calls(text: str) -> AIMessageChunk:
    calls = []
    for number, call in enumerate(text.split(";")):
        name, _, arguments = call.strip().partition(" ")
        calls.append(
            tool_call_chunk(
                name=name,
                args=json.dumps(json.loads(arguments or "{}")),
                id=f"call_{number}_{name}",
                index=number,
            )
        )
    return AIMessageChunk(content="", tool_call_chunks=calls)


class Parrot(BaseChatModel):
    """The model of this module; binding tools has no effect."""

    @property
    def _llm_type(self) -> str:
        return "parrot"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Runnable:
        return self

    def _generate(self, messages, stop=None, run_manager=None, **kwargs) -> ChatResult:
        chunks, _ = build_chunks(messages)
        whole = chunks[0]
        for chunk in chunks[1:]:
            whole += chunk
        message = AIMessage(content=whole.content, tool_calls=whole.tool_calls)
        return ChatResult(generations=[ChatGeneration(message=message)])

    def _stream(
        self, messages, stop=None, run_manager=None, **kwargs
    ) -> Iterator[ChatGenerationChunk]:
        chunks, pause = build_chunks(messages)
        for chunk in chunks:
            time.sleep(pause)
            yield ChatGenerationChunk(message=chunk)

    async def _astream(
        self, messages, stop=None, run_manager=None, **kwargs
    ) -> AsyncIterator[ChatGenerationChunk]:
        chunks, pause = build_chunks(messages)
        for chunk in chunks:
            await asyncio.sleep(pause)
            generation = ChatGenerationChunk(message=chunk)
            if run_manager:
                await run_manager.on_llm_new_token(str(chunk.content), chunk=generation)
            yield generation
