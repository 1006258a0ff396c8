"""Feedback configs, sent by a client or inferred from the first feedback of a key."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any
from uuid import UUID

from django.db import IntegrityError, transaction

from apps.core.tenancy import check_row_limit, get_or_404
from apps.feedback import errors
from apps.feedback.models import FeedbackConfig, FeedbackType

MAX_CATEGORIES = 500
MAX_CONFIGS = 10_000
"""Of a workspace; those that feedback contains are not counted."""


def parse_config(value: Any) -> dict[str, Any]:
    """Return the normalized config; raise `BadFeedbackConfig` with the reason if it is invalid."""
    if not isinstance(value, dict) or value.get("type") not in FeedbackType.values:
        raise errors.BadFeedbackConfig(
            f"`feedback_config.type` must be one of {', '.join(FeedbackType.values)}."
        )
    config_type = value["type"]
    minimum, maximum = (
        _parse_number(value.get(name), f"feedback_config.{name}") for name in ("min", "max")
    )
    if minimum is not None and maximum is not None and minimum >= maximum:
        raise errors.BadFeedbackConfig("`feedback_config.min` must be less than `max`.")
    config: dict[str, Any] = {
        "type": config_type,
        "min": minimum,
        "max": maximum,
        "categories": None,
    }
    if config_type == FeedbackType.CATEGORICAL and value.get("categories") is not None:
        config["categories"] = _parse_categories(value["categories"], "feedback_config.categories")
    if value.get("allows_multiple_categories") is not None:
        if config_type != FeedbackType.CATEGORICAL:
            raise errors.BadFeedbackConfig(
                "`feedback_config.allows_multiple_categories` requires the type `categorical`."
            )
        config["allows_multiple_categories"] = bool(value["allows_multiple_categories"])
    return config


def _parse_number(value: Any, name: str) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= 1e300:
        raise errors.BadFeedbackConfig(f"`{name}` must be a number.")
    return float(value)


def _parse_categories(values: Any, name: str) -> list[dict[str, Any]]:
    if not isinstance(values, list) or not 0 < len(values) <= MAX_CATEGORIES:
        raise errors.BadFeedbackConfig(f"`{name}` must be 1 to {MAX_CATEGORIES} objects.")
    categories = []
    for item in values:
        label = item.get("label") if isinstance(item, dict) else item
        value = (
            _parse_number(item.get("value"), f"{name}.value") if isinstance(item, dict) else None
        )
        if value is None or not isinstance(label, str | None):
            raise errors.BadFeedbackConfig(
                f"Each of `{name}` needs a numeric `value`; its `label` must be a string or null."
            )
        categories.append({"value": value, "label": label and label.replace("\x00", "\ufffd")})
    labels = [item["label"] for item in categories if item["label"] is not None]
    if len({item["value"] for item in categories}) < len(categories) or len(set(labels)) < len(
        labels
    ):
        raise errors.BadFeedbackConfig(f"`{name}` must have different values and labels.")
    return categories


def infer_config(score: float | None, value: Any) -> dict[str, Any]:
    """Infer the config of a key from its first feedback."""
    config_type = FeedbackType.FREEFORM
    if score is not None:
        config_type = FeedbackType.CONTINUOUS
    elif isinstance(value, str | bool):
        config_type = FeedbackType.CATEGORICAL
    return {"type": str(config_type), "min": None, "max": None, "categories": None}


def configs_by_key(workspace_id: UUID, keys: Collection[str]) -> dict[str, FeedbackConfig]:
    rows = FeedbackConfig.objects.for_workspace(workspace_id).filter(key__in=keys)
    return {row.key: row for row in rows}


def keys_with_lower_better(workspace_id: UUID, keys: Collection[str]) -> set[str]:
    """Return the keys whose config says that a lower score is better."""
    configs = FeedbackConfig.objects.for_workspace(workspace_id)
    rows = configs.filter(key__in=keys, is_lower_score_better=True)
    return set(rows.values_list("key", flat=True))


def save_from_feedback(workspace_id: UUID, new_configs: Sequence[FeedbackConfig]) -> None:
    """Save configs that feedback contains or implies; the first of two concurrent configs wins."""
    configs = FeedbackConfig.objects.for_workspace(workspace_id)
    configs.bulk_create(sorted(new_configs, key=lambda config: config.key), ignore_conflicts=True)
    for config in new_configs:
        if not config.is_inferred:
            configs.filter(key=config.key, is_inferred=True).update(
                config=config.config, is_inferred=False
            )


def is_allowed(config: FeedbackConfig, score: float | None, value: Any) -> bool:
    """Whether the config is_allowed the feedback; a config that is not enforced is_allowed all."""
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
    """Complete the score or the value from its category if the feedback has only one of them."""
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

    Replaces an inferred config; raises `FeedbackConfigExists` for any other different config.
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
            stated = configs.filter(is_inferred=False)
            check_row_limit(stated, MAX_CONFIGS, "feedback configs of a workspace")
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
    """Replace the config, add or remove categories, or set `is_lower_score_better`."""
    configs = FeedbackConfig.objects.for_workspace(workspace_id)
    existing = get_or_404(configs.select_for_update(no_key=True), **lookup)
    if changes.get("feedback_config") is not None:
        existing.config = parse_config(changes["feedback_config"])
    if changes.get("add_categories") or changes.get("remove_categories"):
        existing.config = _updated_categories(existing.config, changes)
    if changes.get("is_lower_score_better") is not None:
        existing.is_lower_score_better = changes["is_lower_score_better"]
    existing.is_inferred = False
    existing.save()
    return existing


def _updated_categories(config: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    if config["type"] != FeedbackType.CATEGORICAL:
        raise errors.BadFeedbackConfig(
            "`add_categories` and `remove_categories` require the type `categorical`."
        )
    removed = set(changes.get("remove_categories") or ())
    categories = [item for item in config["categories"] or () if item["value"] not in removed]
    if len(categories) + len(removed) > len(config["categories"] or ()):
        raise errors.BadFeedbackConfig("`remove_categories` names a category that does not exist.")
    if removed and len(categories) < 2:
        raise errors.BadFeedbackConfig("`remove_categories` must leave at least two categories.")
    return config | {
        "categories": _parse_categories(
            [*categories, *(changes.get("add_categories") or ())], "add_categories"
        )
    }


def delete_config(*, workspace_id: UUID, lookup: dict[str, Any]) -> None:
    """Delete the config; existing feedback stays, and the next feedback infers a new config."""
    get_or_404(FeedbackConfig.objects.for_workspace(workspace_id), **lookup).delete()
