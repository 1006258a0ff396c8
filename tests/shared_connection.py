"""Lets threads use the connection of the test, with its transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import pytest
from django.db import connections


@contextmanager
def share_connection(monkeypatch: pytest.MonkeyPatch, *modules: ModuleType) -> Iterator[None]:
    """Share it with the threads in which these modules call functions by `in_thread`."""
    own = connections["default"]

    def run(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        connections["default"] = own
        return function(*args, **kwargs)

    async def call(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return await asyncio.to_thread(run, function, *args, **kwargs)

    own.inc_thread_sharing()
    for module in modules:
        monkeypatch.setattr(module, "in_thread", call)
    yield
    own.dec_thread_sharing()
