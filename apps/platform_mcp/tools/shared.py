"""Arguments that several tools have."""

from __future__ import annotations

from pydantic import Field

from apps.platform_mcp.pages import DEFAULT_CHARS, MAX_CHARS, MIN_CHARS
from apps.platform_mcp.registry import Arguments


class PageArguments(Arguments):
    """A page of a number of characters, with shortened texts."""

    page_number: int = Field(1, ge=1, description="Number of the page, from 1.")
    max_chars_per_page: int = Field(
        DEFAULT_CHARS,
        ge=MIN_CHARS,
        description=f"Characters of a page; more than {MAX_CHARS} count as {MAX_CHARS}.",
    )
    preview_chars: int = Field(
        150, ge=0, description="Characters of a text before it is shortened; 0 for no limit."
    )
