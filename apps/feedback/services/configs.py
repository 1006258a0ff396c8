"""Feedback configs: the meaning of the scores of a key, stated or inferred from its first use."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any
from uuid import UUID

from django.db import IntegrityError, transaction

from apps.core.tenancy import get_or_404
from apps.feedback import errors
from apps.feedback.models import FeedbackConfig, FeedbackType

MAX_CATEGORIES = 500


def parse_config(value: Any) -> dict[str, Any]:
    """The normalized config; `BadFeedbackConfig` says what is wrong with it."""
    if not isinstance(value, dict) or value.get("type") not in FeedbackType.values:
        raise errors.BadFeedbackConfig(f"`type` must be one of {', '.join(FeedbackType.values)}.")
    config_type = value["type"]
    minimum, maximum = (_parse_number(value.get(name), name) for name in ("min", "max"))
    if minimum is not None and maximum is not None and minimum >= maximum:
        raise errors.BadFeedbackConfig("`min` must be less than `max`.")
    config: dict[str, Any] = {
        "type": config_type,
        "min": minimum,
        "max": maximum,
        "categories": None,
    }
    if config_type == FeedbackType.CATEGORICAL and value.get("categories") is not None:
        config["categories"] = _parse_categories(value["categories"])
    if value.get("allows_multiple_categories") is not None:
        if config_type != FeedbackType.CATEGORICAL:
            raise errors.BadFeedbackConfig("Only a categorical key may have several categories.")
        config["allows_multiple_categories"] = bool(value["allows_multiple_categories"])
    return config


def _parse_number(value: Any, name: str) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > 1e300:
        raise errors.BadFeedbackConfig(f"`{name}` must be a number.")
    return float(value)


def _parse_categories(values: Any) -> list[dict[str, Any]]:
    if not isinstance(values, list) or not 0 < len(values) <= MAX_CATEGORIES:
        raise errors.BadFeedbackConfig(f"`categories` must be 1 to {MAX_CATEGORIES} objects.")
    categories = []
    for item in values:
        label = item.get("label") if isinstance(item, dict) else item
        value = _parse_number(item.get("value"), "value") if isinstance(item, dict) else None
        if value is None or not isinstance(label, str | None):
            raise errors.BadFeedbackConfig("A category needs a numeric `value` and a `label`.")
        categories.append({"value": value, "label": label and label.replace("\x00", "\ufffd")})
    labels = [item["label"] for item in categories if item["label"] is not None]
    if len({item["value"] for item in categories}) < len(categories) or len(set(labels)) < len(
        labels
    ):
        raise errors.BadFeedbackConfig("Two categories have the same value or label.")
    return categories


def infer_config(score: float | None, value: Any) -> dict[str, Any]:
    """The config that follows from the first feedback of a key."""
    config_type = FeedbackType.FREEFORM
    if score is not None:
        config_type = FeedbackType.CONTINUOUS
    elif isinstance(value, str | bool):
        config_type = FeedbackType.CATEGORICAL
    return {"type": str(config_type), "min": None, "max": None, "categories": None}


def known_configs(workspace_id: UUID, keys: Collection[str]) -> dict[str, FeedbackConfig]:
    rows = FeedbackConfig.objects.for_workspace(workspace_id).filter(key__in=keys)
    return {row.key: row for row in rows}


def save_from_feedback(workspace_id: UUID, new_configs: Sequence[FeedbackConfig]) -> None:
    """Save configs that feedback states or implies; of two concurrent ones the first is kept."""
    configs = FeedbackConfig.objects.for_workspace(workspace_id)
    configs.bulk_create(sorted(new_configs, key=lambda config: config.key), ignore_conflicts=True)
    for config in new_configs:
        if not config.is_inferred:
            configs.filter(key=config.key, is_inferred=True).update(
                config=config.config, is_inferred=False
            )


def allows(config: FeedbackConfig, score: float | None, value: Any) -> bool:
    """Whether the config allows the feedback; only an enforced config rejects any."""
    if not config.is_enforced:
        return True
    rules = config.config
    if rules["type"] == FeedbackType.CONTINUOUS:
        minimum, maximum = rules["min"], rules["max"]
        return score is None or (
            (minimum is None or score >= minimum) and (maximum is None or score <= maximum)
        )
    if rules["type"] == FeedbackType.CATEGORICAL and rules["categories"] is not None:
        labels = {item["label"] for item in rules["categories"]}
        values = {item["value"] for item in rules["categories"]}
        chosen = value if isinstance(value, list) else [] if value is None else [value]
        return (score is None or score in values) and all(label in labels for label in chosen)
    return True


def complete_category(
    config: dict[str, Any], score: float | None, value: Any
) -> tuple[float | None, Any]:
    """Score and value of a category, if the feedback states only one of them."""
    for item in config.get("categories") or ():
        if score is None and value is not None and value == item["label"]:
            return item["value"], value
        if value is None and score is not None and score == item["value"]:
            return score, item["label"]
    return score, value


def create_config(
    *,
    workspace_id: UUID,
    key: str,
    config: dict[str, Any],
    is_lower_score_better: bool | None,
    is_enforced: bool,
) -> FeedbackConfig:
    """Create the config of a key. Repeating the call returns the existing config.

    Raises `FeedbackConfigExists` for a different config; an inferred one is replaced.
    """
    configs = FeedbackConfig.objects.for_workspace(workspace_id)
    new_config = FeedbackConfig(
        workspace_id=workspace_id,
        key=key,
        config=config,
        is_lower_score_better=bool(is_lower_score_better),
        is_enforced=is_enforced,
    )
    try:
        with transaction.atomic():
            new_config.save(force_insert=True)
    except IntegrityError:
        pass
    else:
        return new_config
    with transaction.atomic():
        existing = configs.select_for_update(no_key=True).get(key=key)
        if existing.is_inferred:
            existing.config, existing.is_inferred = config, False
        elif existing.config != config:
            raise errors.FeedbackConfigExists
        elif is_enforced and existing.is_enforced:
            raise errors.FeedbackConfigEnforced
        if is_lower_score_better is not None or existing.is_lower_score_better is None:
            existing.is_lower_score_better = bool(is_lower_score_better)
        existing.is_enforced = existing.is_enforced or is_enforced
        existing.save()
        return existing


@transaction.atomic
def change_config(
    *, workspace_id: UUID, lookup: dict[str, Any], changes: dict[str, Any]
) -> FeedbackConfig:
    """Change the whole config, add or remove categories, or set the direction."""
    configs = FeedbackConfig.objects.for_workspace(workspace_id)
    existing = get_or_404(configs.select_for_update(no_key=True), **lookup)
    if changes.get("feedback_config") is not None:
        existing.config = parse_config(changes["feedback_config"])
    if changes.get("add_categories") or changes.get("remove_categories"):
        existing.config = _change_categories(existing.config, changes)
    if changes.get("is_lower_score_better") is not None:
        existing.is_lower_score_better = changes["is_lower_score_better"]
    existing.is_inferred = False
    existing.save()
    return existing


def _change_categories(config: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    if config["type"] != FeedbackType.CATEGORICAL:
        raise errors.BadFeedbackConfig("Only a categorical key has categories.")
    removed = set(changes.get("remove_categories") or ())
    kept = [item for item in config["categories"] or () if item["value"] not in removed]
    if len(kept) + len(removed) > len(config["categories"] or ()):
        raise errors.BadFeedbackConfig("A removed category does not exist.")
    if removed and len(kept) < 2:
        raise errors.BadFeedbackConfig("At least two categories must remain.")
    return config | {
        "categories": _parse_categories([*kept, *(changes.get("add_categories") or ())])
    }


def delete_config(*, workspace_id: UUID, lookup: dict[str, Any]) -> None:
    """Delete the config; existing feedback stays, and the next feedback infers a new config."""
    get_or_404(FeedbackConfig.objects.for_workspace(workspace_id), **lookup).delete()
