"""Base classes of the admin pages of all apps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from django.contrib import admin
from django.db import models
from django.http import HttpRequest

M = TypeVar("M", bound=models.Model)

if TYPE_CHECKING:
    _Base = admin.ModelAdmin
else:

    class _Base(admin.ModelAdmin):
        def __class_getitem__(cls, _: Any) -> type:
            return cls


class ReadOnly(_Base[M]):
    """Read-only admin of rows that only services may change."""

    show_full_result_count = False
    """A count of all rows costs as much as the page itself."""
    list_per_page = 50

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: M | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: M | None = None) -> bool:
        return False
