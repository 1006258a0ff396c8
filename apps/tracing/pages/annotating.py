"""Giving feedback from a page: what each key offers, and what the form said."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django import forms

from apps.core.json import loads
from apps.feedback.models import FeedbackConfig

MOST_KEYS = 12
_MOST_STEPS = 11


@dataclass(frozen=True)
class Offer:
    """A feedback key with the scores that one press gives."""

    key: str
    categories: Sequence[dict[str, Any]]
    steps: Sequence[str]
    is_freeform: bool


def offers(workspace_id: UUID) -> list[Offer]:
    """The keys of the workspace, those that were used last first."""
    rows = FeedbackConfig.objects.for_workspace(workspace_id).order_by("-modified_at", "key")
    return [_offer(row) for row in rows[:MOST_KEYS]]


def _offer(row: FeedbackConfig) -> Offer:
    config = row.config
    kind = config.get("type")
    categories = (config.get("categories") or []) if kind == "categorical" else []
    steps = _steps(config.get("min"), config.get("max")) if kind == "continuous" else ()
    return Offer(row.key, categories, steps, kind == "freeform")


def _steps(least: float | None, most: float | None) -> Sequence[str]:
    """Whole numbers within small bounds, else five even steps; 0 and 1 when nothing is said."""
    if least is None or most is None or least >= most:
        return ("0", "1")
    if float(least).is_integer() and float(most).is_integer() and most - least < _MOST_STEPS:
        return [f"{n}" for n in range(int(least), int(most) + 1)]
    return [f"{least + (most - least) * n / 4:g}" for n in range(5)]


class AnnotateForm(forms.Form):
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
        said: dict[str, Any] = self.cleaned_data
        told = (said.get("score"), said.get("comment"), said.get("correction"))
        if not self.errors and all(one in (None, "") for one in told):
            raise forms.ValidationError("Enter a score, a comment or a correction.")
        return said


def of_press(text: str) -> tuple[str, float] | None:
    """Key and score of a pressed button, `key=score`."""
    key, _, score = text.rpartition("=")
    try:
        return (key, float(score)) if key else None
    except ValueError:
        return None
