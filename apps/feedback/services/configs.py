"""What the scores of a key mean: said by somebody, or concluded from the key's first use."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any
from uuid import UUID

from django.db import IntegrityError, transaction

from apps.core.tenancy import get_or_404
from apps.feedback import errors
from apps.feedback.models import FeedbackConfig, FeedbackType

MOST_CATEGORIES = 500


def read_config(said: Any) -> dict[str, Any]:
    """The config in its one form; `BadFeedbackConfig` says what is wrong with it."""
    if not isinstance(said, dict) or said.get("type") not in FeedbackType.values:
        raise errors.BadFeedbackConfig(f"`type` must be one of {', '.join(FeedbackType.values)}.")
    kind = said["type"]
    least, most = (_number(said.get(name), name) for name in ("min", "max"))
    if least is not None and most is not None and least >= most:
        raise errors.BadFeedbackConfig("`min` must be less than `max`.")
    config: dict[str, Any] = {"type": kind, "min": least, "max": most, "categories": None}
    if kind == FeedbackType.CATEGORICAL and said.get("categories") is not None:
        config["categories"] = _categories(said["categories"])
    if said.get("allows_multiple_categories") is not None:
        if kind != FeedbackType.CATEGORICAL:
            raise errors.BadFeedbackConfig("Only a categorical key may have several categories.")
        config["allows_multiple_categories"] = bool(said["allows_multiple_categories"])
    return config


def _number(value: Any, name: str) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > 1e300:
        raise errors.BadFeedbackConfig(f"`{name}` must be a number.")
    return float(value)


def _categories(said: Any) -> list[dict[str, Any]]:
    if not isinstance(said, list) or not 0 < len(said) <= MOST_CATEGORIES:
        raise errors.BadFeedbackConfig(f"`categories` must be 1 to {MOST_CATEGORIES} objects.")
    found = []
    for one in said:
        label = one.get("label") if isinstance(one, dict) else one
        value = _number(one.get("value"), "value") if isinstance(one, dict) else None
        if value is None or not isinstance(label, str | None):
            raise errors.BadFeedbackConfig("A category has a numeric `value` and a `label`.")
        found.append({"value": value, "label": label and label.replace("\x00", "\ufffd")})
    labels = [one["label"] for one in found if one["label"] is not None]
    if len({one["value"] for one in found}) < len(found) or len(set(labels)) < len(labels):
        raise errors.BadFeedbackConfig("Two categories have the same value or label.")
    return found


def infer_config(score: float | None, value: Any) -> dict[str, Any]:
    """What a key's first feedback lets one conclude."""
    kind = FeedbackType.FREEFORM
    if score is not None:
        kind = FeedbackType.CONTINUOUS
    elif isinstance(value, str | bool):
        kind = FeedbackType.CATEGORICAL
    return {"type": str(kind), "min": None, "max": None, "categories": None}


def known_configs(workspace_id: UUID, keys: Collection[str]) -> dict[str, FeedbackConfig]:
    rows = FeedbackConfig.objects.for_workspace(workspace_id).filter(key__in=keys)
    return {row.key: row for row in rows}


def save_learned(workspace_id: UUID, learned: Sequence[FeedbackConfig]) -> None:
    """Keep the configs that feedback brought; of two first uses at once the first one's stands."""
    configs = FeedbackConfig.objects.for_workspace(workspace_id)
    configs.bulk_create(sorted(learned, key=lambda one: one.key), ignore_conflicts=True)
    for one in learned:
        if not one.is_inferred:
            configs.filter(key=one.key, is_inferred=True).update(
                config=one.config, is_inferred=False
            )


def fits(config: FeedbackConfig, score: float | None, value: Any) -> bool:
    """Whether an enforced config takes this; others take everything."""
    if not config.is_enforced:
        return True
    said = config.config
    if said["type"] == FeedbackType.CONTINUOUS:
        least, most = said["min"], said["max"]
        return score is None or (
            (least is None or score >= least) and (most is None or score <= most)
        )
    if said["type"] == FeedbackType.CATEGORICAL and said["categories"] is not None:
        labels = {one["label"] for one in said["categories"]}
        values = {one["value"] for one in said["categories"]}
        given = value if isinstance(value, list) else [] if value is None else [value]
        return (score is None or score in values) and all(one in labels for one in given)
    return True


def complete(config: dict[str, Any], score: float | None, value: Any) -> tuple[float | None, Any]:
    """Score and value of a category, when only one of the two was said."""
    for one in config.get("categories") or ():
        if score is None and value is not None and value == one["label"]:
            return one["value"], value
        if value is None and score is not None and score == one["value"]:
            return score, one["label"]
    return score, value


def create_config(
    *,
    workspace_id: UUID,
    key: str,
    config: dict[str, Any],
    is_lower_score_better: bool | None,
    is_enforced: bool,
) -> FeedbackConfig:
    """Say what a key means. The same again returns what is there; another is refused.

    What was only concluded gives way.
    """
    configs = FeedbackConfig.objects.for_workspace(workspace_id)
    fresh = FeedbackConfig(
        workspace_id=workspace_id,
        key=key,
        config=config,
        is_lower_score_better=bool(is_lower_score_better),
        is_enforced=is_enforced,
    )
    try:
        with transaction.atomic():
            fresh.save(force_insert=True)
    except IntegrityError:
        pass
    else:
        return fresh
    with transaction.atomic():
        there = configs.select_for_update(no_key=True).get(key=key)
        if there.is_inferred:
            there.config, there.is_inferred = config, False
        elif there.config != config:
            raise errors.FeedbackConfigExists
        elif is_enforced and there.is_enforced:
            raise errors.FeedbackConfigEnforced
        if is_lower_score_better is not None or there.is_lower_score_better is None:
            there.is_lower_score_better = bool(is_lower_score_better)
        there.is_enforced = there.is_enforced or is_enforced
        there.save()
        return there


@transaction.atomic
def change_config(
    *, workspace_id: UUID, lookup: dict[str, Any], changes: dict[str, Any]
) -> FeedbackConfig:
    """Set what is given: the whole config, categories to add or take away, the direction."""
    configs = FeedbackConfig.objects.for_workspace(workspace_id)
    there = get_or_404(configs.select_for_update(no_key=True), **lookup)
    if changes.get("feedback_config") is not None:
        there.config = read_config(changes["feedback_config"])
    if changes.get("add_categories") or changes.get("remove_categories"):
        there.config = _recategorized(there.config, changes)
    if changes.get("is_lower_score_better") is not None:
        there.is_lower_score_better = changes["is_lower_score_better"]
    there.is_inferred = False
    there.save()
    return there


def _recategorized(config: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    if config["type"] != FeedbackType.CATEGORICAL:
        raise errors.BadFeedbackConfig("Only a categorical key has categories.")
    gone = set(changes.get("remove_categories") or ())
    kept = [one for one in config["categories"] or () if one["value"] not in gone]
    if len(kept) + len(gone) > len(config["categories"] or ()):
        raise errors.BadFeedbackConfig("There is no category of that value.")
    if gone and len(kept) < 2:
        raise errors.BadFeedbackConfig("At least two categories must remain.")
    return config | {"categories": _categories([*kept, *(changes.get("add_categories") or ())])}


def delete_config(*, workspace_id: UUID, lookup: dict[str, Any]) -> None:
    """The key's next use begins anew; feedback that is there stays."""
    get_or_404(FeedbackConfig.objects.for_workspace(workspace_id), **lookup).delete()
