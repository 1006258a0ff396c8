"""Parses recorded chat messages of every format into one shape.

`parse_conversation` finds the messages of a payload, whichever client recorded it, and returns
system prompts, text, thinking, images and files, and tool calls joined with their results. No JSON
raises, and no list or depth is unbounded.

    conversation → where a payload has its messages; joins results with calls
    formats      → one module per format
    blocks       → content blocks of all formats
    media, tools → what all formats share
"""

from apps.tracing.messages.conversation import (
    Conversation,
    new_messages,
    parse_conversation,
    parse_messages,
)
from apps.tracing.messages.documents import Document, parse_documents, single_text
from apps.tracing.messages.excerpts import find_excerpt, message_excerpt
from apps.tracing.messages.media import parse_address
from apps.tracing.messages.types import Message, MessagePart, ToolCall, part_json

__all__ = [
    "Conversation",
    "Document",
    "Message",
    "MessagePart",
    "ToolCall",
    "find_excerpt",
    "message_excerpt",
    "new_messages",
    "parse_address",
    "parse_conversation",
    "parse_documents",
    "parse_messages",
    "part_json",
    "single_text",
]
