"""A transcript as Markdown, for copies and downloads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from apps.tracing.messages import Message, MessagePart
from apps.tracing.pages.transcripts.blocks import AgentView, Block, CallView
from apps.tracing.pages.transcripts.loading import Transcript

_KIND_TITLES = {"turn": "LLM call", "tool": "Called by code"}
_ROLE_TITLES = {"system": "System", "human": "Human", "ai": "Assistant", "tool": "Tool result"}


def render_markdown(transcript: Transcript) -> str:
    """Return the page of a transcript as Markdown."""
    lines = [f"# {transcript.name}", "", *_render_blocks(transcript.blocks, 2)]
    if transcript.next_offset is not None:
        lines += ["", "*Later runs are not included.*"]
    return "\n".join(lines).rstrip() + "\n"


def _render_blocks(blocks: Sequence[Block], level: int) -> Iterator[str]:
    for block in blocks:
        kind = _KIND_TITLES.get(block.kind, block.kind.capitalize())
        title = " ".join(filter(None, (kind, block.title)))
        yield from (f"{'#' * min(level, 6)} {title}", "")
        yield from _render_messages((*block.system, *block.messages, *block.reply))
        if block.view is not None:
            yield from (*_fenced(block.view.text or block.view.beginning), "")
        yield from _render_documents(block)
        if block.error is not None:
            yield from (f"**Error:** {block.error.title}", "")
        for group in block.calls:
            for call in group.calls:
                yield from _render_call(call, level)
        if block.agent is not None:
            yield from _render_agent(block.agent, level)


def _render_documents(block: Block) -> Iterator[str]:
    for document in block.documents:
        yield from (f"> {line}" for line in document.text.splitlines())
        yield ""


def _render_messages(messages: Iterable[Message]) -> Iterator[str]:
    for message in messages:
        yield from (f"**{_ROLE_TITLES.get(message.role, message.role)}**", "")
        yield from _render_parts(message.parts)


def _render_parts(parts: Iterable[MessagePart]) -> Iterator[str]:
    for part in parts:
        if part.is_medium:
            yield part.label
        elif part.kind == "thinking":
            yield from (f"> {line}" for line in part.text.splitlines())
        elif part.kind == "json":
            yield from _fenced(part.text)
        else:
            yield part.text
        yield ""


def _render_call(call: CallView, level: int) -> Iterator[str]:
    yield from (f"**Tool call** `{call.call.name}`", "", *_fenced(call.call.arguments), "")
    for agent in call.agents:
        yield from _render_agent(agent, level)
    for retrieval in call.retrievals:
        yield from (f"**Retrieval** {retrieval.title}", "", *_render_documents(retrieval))
        if retrieval.error is not None:
            yield from (f"**Error:** {retrieval.error.title}", "")
    if call.error is not None:
        yield from (f"**Error:** {call.error.title}", "")
    elif call.call.result:
        yield from ("**Result**", "", *_render_parts(call.call.result))
    else:
        yield from ("*No result recorded.*", "")


def _render_agent(agent: AgentView, level: int) -> Iterator[str]:
    yield from (f"{'#' * min(level + 1, 6)} {agent.path}", "")
    yield from _render_blocks(agent.blocks, level + 2)


def _fenced(text: str) -> tuple[str, ...]:
    fence = "```"
    while fence in text:
        fence += "`"
    return fence, text, fence
