r"""JSON that is stored as it was written, and its conversion for searches.

`jsonb` reorders keys, rejects `\u0000` and turns 1e16 into an integer. A column of type `json` is
validated and keeps the text.
"""

from __future__ import annotations

import json
from typing import Any

from django.db import models

from apps.core.json import dumps_text, loads_exact


class VerbatimJSONField(models.JSONField):
    """A column of type `json`. It has no equality and no index: filter by `searchable`."""

    def db_type(self, connection: Any) -> str:
        return "json"

    def get_placeholder(self, value: Any, compiler: Any, connection: Any) -> str:
        return "%s::json"

    def get_db_prep_value(self, value: Any, connection: Any, prepared: bool = False) -> str | None:  # noqa: FBT001, FBT002  (Django's signature)
        return None if value is None else dumps_text(value)

    def select_format(self, compiler: Any, sql: str, params: Any) -> tuple[str, Any]:
        # The driver decodes `json` itself, but does not keep integers apart from floats.
        return f"{sql}::text", params

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> Any:
        return loads_exact(value) if isinstance(value, str) else value

    def value_to_string(self, obj: models.Model) -> str:
        return json.dumps(self.value_from_object(obj))


def searchable(column: str) -> str:
    r"""SQL that converts a `json` column to `jsonb`, with U+FFFD for `\u0000`.

    An escaped backslash before the letters `u0000` does not escape U+0000 and is kept.
    """
    text = f"{column}::text"
    nul, replaced = r"(?<!\\)((?:\\\\)*)\\u0000", r"\1\\ufffd"
    return f"""(CASE WHEN strpos({text}, '\\u0000') = 0 THEN {text}
        ELSE regexp_replace({text}, '{nul}', '{replaced}', 'g') END)::jsonb"""
