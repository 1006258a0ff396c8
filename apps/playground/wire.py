"""Bodies of the playground's smaller routes; unknown fields are refused."""

from __future__ import annotations

import msgspec

from apps.playground.setting import State


class ShareBody(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The columns of a link."""

    state: State
    title: str = ""
