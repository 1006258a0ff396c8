"""Cells of CSV files that spreadsheets do not evaluate, and that an import reads back unchanged."""

from __future__ import annotations

import re

EXPORT_COLUMNS = ("id", "metadata")
"""The first and the last column of an export, by which an import knows it."""
_FORMULA = re.compile(r"'*[=+\-@\t\r]")


def protect_text(text: str) -> str:
    """Return the text with an apostrophe before what a spreadsheet takes for a formula.

    Texts that begin with apostrophes before such a character get one more.
    """
    return f"'{text}" if _FORMULA.match(text) else text


def restore_text(text: str) -> str:
    """Return the text from which `protect_text` made this one."""
    return text[1:] if text.startswith("'") and _FORMULA.match(text) else text
