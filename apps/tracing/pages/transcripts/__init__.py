"""A trace as the conversation that it is: turns of a model, tool calls, agents within agents."""

from apps.tracing.pages.transcripts.agents import has_messages
from apps.tracing.pages.transcripts.loading import (
    RUNS_PER_PAGE,
    Transcript,
    load_transcript,
    load_turn_transcripts,
)
from apps.tracing.pages.transcripts.markdown import render_markdown

__all__ = [
    "RUNS_PER_PAGE",
    "Transcript",
    "has_messages",
    "load_transcript",
    "load_turn_transcripts",
    "render_markdown",
]
