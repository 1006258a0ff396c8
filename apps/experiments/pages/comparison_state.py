"""The state of the comparison page, which its URL carries: experiments, filters, order and page."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from django.http import QueryDict
from django.utils.http import urlencode

from apps.core import errors

MAX_COMPARED = 10
PAGE_SIZE = 25
SORTS = {
    "worst": "Largest regression in",
    "best": "Largest improvement in",
    "low": "Lowest score in",
    "high": "Highest score in",
}
"""The orders by the selected score in one experiment, and the beginnings of their labels."""


@dataclass(frozen=True, kw_only=True)
class ComparisonState:
    """The compared experiments, the baseline first, and which examples are listed."""

    experiment_ids: tuple[UUID, ...]
    key: str = ""
    """The feedback key of the filters and of the order by score."""
    better: tuple[UUID, ...] = ()
    """Experiments whose score must be better than the baseline's."""
    worse: tuple[UUID, ...] = ()
    failed: tuple[UUID, ...] = ()
    """Experiments in which a run of the example must have failed."""
    score_of: UUID | None = None
    """The experiment whose score must be between `low` and `high`, inclusive."""
    low: float | None = None
    high: float | None = None
    sort: str = ""
    """A key of `SORTS`; empty is the order of the first runs."""
    sort_of: UUID | None = None
    pairwise_id: UUID | None = None
    """The comparative experiment whose scores count, too."""
    offset: int = 0

    @classmethod
    def read(cls, params: QueryDict, baseline_id: UUID | None) -> ComparisonState:
        """Parse the parameters.

        One experiment without a `baseline` is compared with that of the dataset. Raises
        `NotFound` for an invalid id and `BadRequest` for another invalid value.
        """
        ids = [_parse_id(text) for text in params.getlist("e")]
        if "baseline" in params:
            ids.insert(0, _parse_id(params.get("baseline", "")))
        elif baseline_id is not None and (baseline_id in ids or len(ids) == 1):
            ids.insert(0, baseline_id)
        sort, _, sort_of = params.get("sort", "").partition(".")
        low, high = _parse_number(params, "low"), _parse_number(params, "high")
        has_range = low is not None or high is not None
        if has_range and not params.get("score_of"):
            raise errors.BadRequest("Choose the experiment of the score range with `score_of`.")
        state = cls(
            experiment_ids=tuple(dict.fromkeys(ids)),
            key=params.get("key", "").replace("\0", "")[:1000],
            better=_parse_ids(params, "better"),
            worse=_parse_ids(params, "worse"),
            failed=_parse_ids(params, "failed"),
            score_of=_parse_id(params.get("score_of", "")) if has_range else None,
            low=low,
            high=high,
            sort=sort,
            sort_of=_parse_id(sort_of) if sort else None,
            pairwise_id=_parse_id(params.get("pairwise", "")) if params.get("pairwise") else None,
            offset=_parse_offset(params.get("from", "")),
        )
        state._validate()
        return state

    def _validate(self) -> None:
        if len(self.experiment_ids) > MAX_COMPARED:
            raise errors.BadRequest(f"At most {MAX_COMPARED} experiments can be compared.")
        if self.sort and self.sort not in SORTS:
            raise errors.BadRequest("`sort` is not one of the orders of this page.")
        if self.needs_scores and not self.key:
            raise errors.BadRequest("Choose the score of the filter or of the order with `key`.")
        named = {*self.better, *self.worse, *self.failed, self.score_of, self.sort_of} - {None}
        if not named <= set(self.experiment_ids):
            raise errors.BadRequest("A filter names an experiment that is not compared.")
        against = {*self.better, *self.worse}
        if self.sort in {"worst", "best"}:
            against.add(self.sort_of)  # type: ignore[arg-type]  # set with `sort`
        if self.baseline_id in against:
            raise errors.BadRequest("The baseline cannot be compared with itself.")

    @property
    def baseline_id(self) -> UUID | None:
        return self.experiment_ids[0] if self.experiment_ids else None

    @property
    def other_ids(self) -> tuple[UUID, ...]:
        return self.experiment_ids[1:]

    @property
    def needs_scores(self) -> bool:
        """Whether scores decide which examples are listed, or their order."""
        return bool(self.better or self.worse or self.score_of or self.sort)

    @property
    def is_limited(self) -> bool:
        return bool(self.better or self.worse or self.failed or self.score_of)

    @property
    def scored_ids(self) -> set[UUID]:
        """The experiments whose scores the filters and the order read."""
        ids = {*self.better, *self.worse, self.score_of, self.sort_of, self.baseline_id}
        return {item for item in ids if item is not None}

    @property
    def experiment_parameters(self) -> list[tuple[str, str]]:
        """Return the parameters that select experiments and scores, without filters."""
        pairs: list[tuple[str, Any]] = [("e", item) for item in self.other_ids]
        pairs += [("baseline", self.baseline_id), ("key", self.key), ("pairwise", self.pairwise_id)]
        return [(name, str(value)) for name, value in pairs if value]

    @property
    def parameters(self) -> list[tuple[str, str]]:
        pairs: list[tuple[str, Any]] = [
            (name, item) for name in ("better", "worse", "failed") for item in getattr(self, name)
        ]
        if self.score_of:
            pairs += [("score_of", self.score_of), ("low", self.low), ("high", self.high)]
        if self.sort:
            pairs.append(("sort", f"{self.sort}.{self.sort_of}"))
        if self.offset:
            pairs.append(("from", self.offset))
        return self.experiment_parameters + [
            (name, str(value)) for name, value in pairs if value is not None
        ]

    @property
    def query_string(self) -> str:
        return f"?{urlencode(self.parameters)}"

    @property
    def experiment_query(self) -> str:
        return f"?{urlencode(self.experiment_parameters)}"

    @property
    def url_without_filters(self) -> str:
        return self.url(better=(), worse=(), failed=(), score_of=None, low=None, high=None)

    def url(self, **changes: Any) -> str:
        """Return the query string of the first page with these changes."""
        return replace(self, **({"offset": 0} | changes)).query_string

    def url_without(self, experiment_id: UUID) -> str:
        """Return the query string without the experiment and without filters that name it."""
        remaining = tuple(item for item in self.experiment_ids if item != experiment_id)
        return self._reordered(remaining)

    def url_with_baseline(self, experiment_id: UUID) -> str:
        return self._reordered((experiment_id, *self.experiment_ids))

    def url_with(self, experiment_id: UUID) -> str:
        return self.url(experiment_ids=(*self.experiment_ids, experiment_id))

    def _reordered(self, ids: Iterable[UUID]) -> str:
        """Keep only the filters that have the same meaning with another baseline."""
        ids = tuple(dict.fromkeys(ids))
        is_same = ids[:1] == self.experiment_ids[:1]
        keeps_sort = self.sort_of in ids and (is_same or self.sort in {"low", "high"})
        return self.url(
            experiment_ids=ids,
            better=tuple(item for item in self.better if is_same and item in ids),
            worse=tuple(item for item in self.worse if is_same and item in ids),
            failed=tuple(item for item in self.failed if item in ids),
            score_of=self.score_of if self.score_of in ids else None,
            sort=self.sort if keeps_sort else "",
            sort_of=self.sort_of if keeps_sort else None,
        )


def _parse_id(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise errors.NotFound from None


def _parse_ids(params: QueryDict, name: str) -> tuple[UUID, ...]:
    return tuple(dict.fromkeys(_parse_id(text) for text in params.getlist(name) if text))


def _parse_number(params: QueryDict, name: str) -> float | None:
    text = params.get(name, "").strip()
    try:
        value = float(text) if text else None
    except ValueError:
        value = math.nan
    if value is not None and not math.isfinite(value):
        raise errors.BadRequest(f"`{name}` is not a number.")
    return value


def _parse_offset(text: str) -> int:
    return int(text) if text.isdecimal() and len(text) < 8 else 0
