"""The feedback form of a run: the choices of each key, and the parsed input."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django import forms

from apps.core.json import loads
from apps.feedback.models import FeedbackConfig

MAX_KEYS = 12
_MAX_STEPS = 11


@dataclass(frozen=True)
class KeyChoices:
    """A feedback key and the scores that one click gives."""

    key: str
    categories: Sequence[dict[str, Any]]
    steps: Sequence[str]
    is_freeform: bool


def list_key_choices(workspace_id: UUID) -> list[KeyChoices]:
    """The keys of the workspace, most recently used first."""
    rows = FeedbackConfig.objects.for_workspace(workspace_id).order_by("-modified_at", "key")
    return [_key_choices(row) for row in rows[:MAX_KEYS]]


def _key_choices(row: FeedbackConfig) -> KeyChoices:
    config = row.config
    config_type = config.get("type")
    categories = (config.get("categories") or []) if config_type == "categorical" else []
    steps = _steps(config.get("min"), config.get("max")) if config_type == "continuous" else ()
    return KeyChoices(row.key, categories, steps, config_type == "freeform")


def _steps(minimum: float | None, maximum: float | None) -> Sequence[str]:
    """Integers in a small range, else five even steps; 0 and 1 without bounds."""
    if minimum is None or maximum is None or minimum >= maximum:
        return ("0", "1")
    is_integral = float(minimum).is_integer() and float(maximum).is_integer()
    if is_integral and maximum - minimum < _MAX_STEPS:
        return [f"{n}" for n in range(int(minimum), int(maximum) + 1)]
    return [f"{minimum + (maximum - minimum) * n / 4:g}" for n in range(5)]


class FeedbackForm(forms.Form):
    key = forms.CharField(max_length=1000, label="Key")
    score = forms.FloatField(required=False, label="Score", widget=forms.TextInput)
    comment = forms.CharField(
        max_length=100_000, required=False, widget=forms.Textarea, label="Comment"
    )
    correction = forms.CharField(
        max_length=1_000_000,
        required=False,
        widget=forms.Textarea,
        label="Correction",
        help_text="The expected output, as JSON or text.",
    )

    def clean_correction(self) -> Any:
        text = self.cleaned_data["correction"].strip()
        if not text:
            return None
        try:
            return loads(text)
        except ValueError:
            return text

    def clean(self) -> dict[str, Any]:
        fields: dict[str, Any] = self.cleaned_data
        content = (fields.get("score"), fields.get("comment"), fields.get("correction"))
        if not self.errors and all(value in (None, "") for value in content):
            raise forms.ValidationError("Give a score, a comment or a correction.")
        return fields


def parse_click(text: str) -> tuple[str, float] | None:
    """The key and score of a clicked button, `key=score`."""
    key, _, score = text.rpartition("=")
    try:
        return (key, float(score)) if key else None
    except ValueError:
        return None
