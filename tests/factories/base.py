from __future__ import annotations

from typing import Any, TypeVar

from django.db.models import Model
from factory.django import DjangoModelFactory

M = TypeVar("M", bound=Model)


class UnscopedFactory(DjangoModelFactory[M]):
    """Creates rows of tenant models, whose `objects` has no `create`."""

    class Meta:
        abstract = True

    @classmethod
    def _get_manager(cls, model_class: type[M]) -> Any:
        return model_class.unscoped  # type: ignore[attr-defined]
