"""The parts of OpenTelemetry's GenAI conventions, as instrumentations send them.

Source: `gen-ai-input-messages.json` of the semantic conventions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from apps.tracing.messages.media import parse_media
from apps.tracing.messages.tools import tool_result_block
from apps.tracing.messages.types import FILE, MEDIA_KINDS, BlockParser, Piece
from apps.tracing.messages.values import string


def _blob_part(block: dict[str, Any]) -> Sequence[Piece] | None:
    modality = string(block.get("modality"))
    kind = modality if modality in MEDIA_KINDS else FILE
    part = parse_media({**block, "data": block.get("content")}, kind)
    return None if part is None else (part,)


BLOCKS: dict[str, BlockParser] = {
    "blob": _blob_part,
    "uri": _blob_part,
    "tool_call_response": tool_result_block,
    "server_tool_call_response": tool_result_block,
}
