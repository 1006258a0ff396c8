"""The scores of what `perform_eval` returned.

It may return what the public SDK's evaluators return, `{"key": ..., "score": ..., "comment": ...}`
or `{"results": [...]}`, a list of such, one bare value, or as on the hosted product an object whose
names are feedback keys, `{"correctness": 1, "silliness": 0}`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from apps.evaluators.errors import BadCodeResult
from apps.evaluators.scoring import (
    MAX_CATEGORY_LENGTH,
    MAX_COMMENT_LENGTH,
    MAX_KEYS,
    REASONING_NAMES,
    Score,
)
from apps.feedback.models import KEY_LENGTH
from apps.feedback.wire import MAX_SCORE

MARKS = frozenset({"key", "score", "value"})
"""An object with one of these names is one result; else its names are feedback keys."""
RESULTS = "results"
_FIELDS = MARKS | {"comment"}


def read_result(result: Any, default_key: str) -> list[Score]:
    """Return the scores; those without a key have the default one. Raises `BadCodeResult`."""
    scores = list(_read(result, default_key))
    if not scores:
        raise BadCodeResult("perform_eval returned no score.")
    if len(scores) > MAX_KEYS:
        raise BadCodeResult(f"perform_eval returned more than {MAX_KEYS} scores.")
    keys = [score.key for score in scores]
    if repeated := next((key for key in keys if keys.count(key) > 1), None):
        raise BadCodeResult(f"perform_eval returned two scores of the key `{repeated:.100}`.")
    return scores


def _read(result: Any, default_key: str) -> Iterator[Score]:
    if isinstance(result, dict) and isinstance(result.get(RESULTS), list):
        _refuse_others(result, {RESULTS})
        result = result[RESULTS]
    if isinstance(result, list):
        for item in result[: MAX_KEYS + 1]:
            if not isinstance(item, dict):
                raise BadCodeResult("perform_eval returned a list whose items are not objects.")
            yield from _read_object(item, default_key)
    elif isinstance(result, dict):
        yield from _read_object(result, default_key)
    elif result is None:
        raise BadCodeResult("perform_eval returned None.")
    else:
        yield _build(default_key, result, None)


def _read_object(item: dict[str, Any], default_key: str) -> Iterator[Score]:
    if MARKS & item.keys():
        yield _read_one(item, default_key)
        return
    comment = next((item[name] for name in REASONING_NAMES if item.get(name)), None)
    for name, value in item.items():
        if name not in REASONING_NAMES and value is not None:
            yield _build(name, value, comment)


def _read_one(item: dict[str, Any], default_key: str) -> Score:
    _refuse_others(item, _FIELDS)
    key = item.get("key") or default_key
    score, value, comment = item.get("score"), item.get("value"), item.get("comment")
    if score is None:
        if value is None:
            raise BadCodeResult(f"perform_eval returned no score of `{key!s:.100}`.")
        return _build(key, value, comment)
    if isinstance(score, str):
        raise BadCodeResult(f"The score of `{key!s:.100}` is a text; return it as `value`.")
    result = _build(key, score, comment)
    if value is not None:
        if not isinstance(value, str):
            raise BadCodeResult(f"The value of `{key!s:.100}` next to a score must be a text.")
        result.value = value[:MAX_CATEGORY_LENGTH]
    return result


def _refuse_others(item: dict[str, Any], names: Collection[str]) -> None:
    others = [name for name in item if name not in names and item[name] is not None]
    if others:
        raise BadCodeResult(f"perform_eval returned `{others[0]:.100}`, which is not supported.")


def _build(key: Any, value: Any, comment: Any) -> Score:
    """A text is a category, a number or a boolean a score."""
    if not isinstance(key, str) or not 0 < len(key) <= KEY_LENGTH:
        raise BadCodeResult(f"A feedback key is a text of 1 to {KEY_LENGTH} characters.")
    if comment is not None and not isinstance(comment, str):
        raise BadCodeResult(f"The comment of `{key:.100}` must be a text.")
    score = Score(key, comment=None if comment is None else comment[:MAX_COMMENT_LENGTH])
    if isinstance(value, str):
        score.value = value[:MAX_CATEGORY_LENGTH]
    elif isinstance(value, bool | int | float):
        if abs(value) > MAX_SCORE:
            raise BadCodeResult(f"The score of `{key:.100}` is larger than {MAX_SCORE:.0e}.")
        score.score = float(value)
    else:
        raise BadCodeResult(f"`{key:.100}` is neither a number nor a text.")
    return score
