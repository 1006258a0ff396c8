"""The feedback form of a run: the choices of each key, and the parsed input."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django import forms

from apps.core.json import loads
from apps.feedback.models import Feedback, FeedbackConfig

MAX_KEYS = 12
_MAX_STEPS = 11
_SAMPLED_FEEDBACK = 200
"""The newest feedback of a project, whose keys are listed first."""
_SAMPLED_SCORES = 50
"""The newest scores of a key without a range, from which its buttons are derived."""


@dataclass(frozen=True)
class KeyChoices:
    """A feedback key and the scores that one click gives.

    A key without categories and steps takes a typed number, or only a comment if it is freeform.
    """

    key: str
    categories: Sequence[dict[str, Any]] = ()
    steps: Sequence[str] = ()
    is_freeform: bool = False
    description: str = ""
    is_required: bool = False
    score: float | None = None
    """The score that the user has given."""
    comment: str = ""
    """The comment that the user has given."""

    @property
    def selected_step(self) -> str:
        """The step that is the given score; empty for none."""
        return next((step for step in self.steps if float(step) == self.score), "")

    @property
    def is_given(self) -> bool:
        return self.score is not None or bool(self.comment)


def list_key_choices(workspace_id: UUID, project_id: UUID) -> list[KeyChoices]:
    """Return the keys of the workspace: those of the project's newest feedback first.

    The others follow, most recently changed first.
    """
    newest = Feedback.objects.for_workspace(workspace_id).filter(project_id=project_id)
    used = newest.order_by("-created_at", "-id").values_list("key", flat=True)
    counts = Counter(used[:_SAMPLED_FEEDBACK])
    rows = FeedbackConfig.objects.for_workspace(workspace_id).order_by("-modified_at", "key")
    own = list(rows.filter(key__in=counts))
    own.sort(key=lambda row: -counts[row.key])
    others = rows.exclude(pk__in=[row.pk for row in own])
    return _list_choices(workspace_id, [*own, *others[:MAX_KEYS]][:MAX_KEYS])


def choices_by_key(workspace_id: UUID, keys: Sequence[str]) -> dict[str, KeyChoices]:
    """Return the choices of these keys; a key without a config takes a typed number."""
    rows = FeedbackConfig.objects.for_workspace(workspace_id).filter(key__in=keys)
    choices = {item.key: item for item in _list_choices(workspace_id, list(rows))}
    return {key: choices.get(key, KeyChoices(key)) for key in keys}


def _list_choices(workspace_id: UUID, configs: Sequence[FeedbackConfig]) -> list[KeyChoices]:
    keys = [row.key for row in configs if _is_numeric(row) and _range(row) is None]
    scores = _sample_scores(workspace_id, keys)
    return [_build_choices(row, scores.get(row.key, ())) for row in configs]


def _build_choices(row: FeedbackConfig, scores: Sequence[float]) -> KeyChoices:
    if not _is_numeric(row):
        categories = row.config.get("categories") or ()
        return KeyChoices(row.key, categories, is_freeform=not categories)
    limits = _range(row)
    steps = _score_steps(*limits) if limits else _steps_of_scores(scores)
    return KeyChoices(row.key, steps=steps)


def _is_numeric(row: FeedbackConfig) -> bool:
    return bool(row.config.get("type") == "continuous")


def _range(row: FeedbackConfig) -> tuple[float, float] | None:
    minimum, maximum = row.config.get("min"), row.config.get("max")
    return None if minimum is None or maximum is None else (minimum, maximum)


def _sample_scores(workspace_id: UUID, keys: Sequence[str]) -> dict[str, list[float]]:
    """Return the newest scores of each key, in one query."""
    samples = [
        Feedback.objects.for_workspace(workspace_id)
        .filter(key=key, score__isnull=False)
        .order_by("-created_at", "-id")
        .values_list("key", "score")[:_SAMPLED_SCORES]
        for key in keys
    ]
    scores: dict[str, list[float]] = {}
    for key, score in samples[0].union(*samples[1:], all=True) if samples else ():
        if score is not None:
            scores.setdefault(key, []).append(score)
    return scores


def _steps_of_scores(scores: Sequence[float]) -> Sequence[str]:
    """Return the steps of the scale that the scores use; empty if they use no usual scale.

    The usual scales are 0 and 1, fractions of 1, 1 to 5 and 1 to 10; the latter two may have a 0.
    """
    if not scores:
        return ()
    low, high = min(scores), max(scores)
    is_integral = all(float(score).is_integer() for score in scores)
    if low >= 0 and high <= 1:
        return ("0", "1") if is_integral else _even_steps(0, 1)
    if is_integral and low >= 0 and high <= 10:
        return _score_steps(0 if low == 0 else 1, 5 if high <= 5 else 10)
    return ()


def _score_steps(minimum: float, maximum: float) -> Sequence[str]:
    """Return all integers of a small range, else five even steps."""
    is_integral = float(minimum).is_integer() and float(maximum).is_integer()
    if is_integral and maximum - minimum < _MAX_STEPS:
        return [f"{n}" for n in range(int(minimum), int(maximum) + 1)]
    return _even_steps(minimum, maximum)


def _even_steps(minimum: float, maximum: float) -> Sequence[str]:
    return [f"{minimum + (maximum - minimum) * n / 4:.12g}" for n in range(5)]


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
        help_text="The expected output, as a JSON object or text.",
    )

    def clean_correction(self) -> Any:
        text = self.cleaned_data["correction"].strip()
        if not text:
            return None
        try:
            correction = loads(text)
        except ValueError:
            return text
        # The public clients read an object or text, so that a number or a list stays text.
        return correction if isinstance(correction, dict) else text

    def clean(self) -> dict[str, Any]:
        fields: dict[str, Any] = self.cleaned_data
        content = (fields.get("score"), fields.get("comment"), fields.get("correction"))
        if not self.errors and all(value in (None, "") for value in content):
            raise forms.ValidationError("Enter a score, a comment or a correction.")
        return fields
