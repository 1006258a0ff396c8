"""Forms of the pages of annotation queues."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

from django import forms

from apps.annotation.models import NAME_LENGTH
from apps.annotation.rubric import MAX_ITEMS, RubricItem
from apps.annotation.wire import MAX_REVIEWS
from apps.feedback.models import KEY_LENGTH

_SEPARATOR = re.compile(r":\s")
_OTHER_FIELDS = ("value_descriptions", "score_descriptions", "is_assertion", "regex_validator")
"""Of a rubric item: the API sets them, the form keeps them."""


class QueueForm(forms.Form):
    """The fields of a queue. The rubric is one feedback key a line; a star makes it required.

    `rubric_items` is the stored rubric: what a line cannot say of a key stays as it is there.
    """

    name = forms.CharField(max_length=NAME_LENGTH)
    description = forms.CharField(required=False, max_length=10_000)
    rubric_instructions = forms.CharField(
        required=False,
        max_length=50_000,
        label="Instructions",
        widget=forms.Textarea(attrs={"rows": 4}),
        help_text="Shown above the scores, as Markdown.",
    )
    rubric = forms.CharField(
        required=False,
        max_length=100_000,
        label="Feedback keys",
        widget=forms.Textarea(attrs={"rows": 4, "spellcheck": "false"}),
        help_text="One a line, as “key: description”. A star after the key makes it required.",
    )
    num_reviewers_per_item = forms.IntegerField(
        min_value=1,
        max_value=MAX_REVIEWS,
        initial=1,
        label="Reviews of an item",
        help_text="An item is archived after this number of reviews.",
    )

    def __init__(
        self, *args: Any, rubric_items: Iterable[Mapping[str, Any]] = (), **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self._stored_items = {item["feedback_key"]: item for item in rubric_items}

    def clean_description(self) -> str | None:
        return self.cleaned_data["description"] or None

    def clean_rubric_instructions(self) -> str | None:
        return self.cleaned_data["rubric_instructions"] or None

    def clean_rubric(self) -> list[RubricItem]:
        lines = [line.strip() for line in self.cleaned_data["rubric"].splitlines()]
        items = [self._parse_line(line) for line in lines if line]
        if len(items) > MAX_ITEMS:
            raise forms.ValidationError(f"A rubric may have at most {MAX_ITEMS} keys.")
        return items

    def _parse_line(self, line: str) -> RubricItem:
        key, *rest = _SEPARATOR.split(line, maxsplit=1)
        key = key.rstrip()
        is_required = len(key) > 1 and key.endswith("*")
        if is_required:
            key = key[:-1].rstrip()
        if not 1 <= len(key) <= KEY_LENGTH:
            raise forms.ValidationError(f"A feedback key has 1 to {KEY_LENGTH} characters.")
        stored = self._stored_items.get(key, {})
        description: str | None = "".join(rest).strip() or None
        if description == _to_one_line(stored.get("description")):
            description = stored.get("description")
        return RubricItem(
            feedback_key=key,
            description=description,
            is_required=is_required,
            **{name: stored[name] for name in _OTHER_FIELDS if name in stored},
        )


def _to_one_line(text: str | None) -> str | None:
    return " ".join(text.split()) if text else None


def format_rubric(items: Iterable[Mapping[str, Any]]) -> str:
    """Return the rubric as the form shows it."""
    return "\n".join(
        item["feedback_key"]
        + ("*" if item.get("is_required") else "")
        + (f": {_to_one_line(item['description'])}" if item.get("description") else "")
        for item in items
    )


class ScoreForm(forms.Form):
    """The score or the comment of one key."""

    key = forms.CharField(max_length=KEY_LENGTH)
    score = forms.FloatField(required=False)
    comment = forms.CharField(required=False, max_length=100_000)

    def clean(self) -> dict[str, Any]:
        fields: dict[str, Any] = super().clean() or {}
        if not self.errors and fields.get("score") is None and not fields.get("comment"):
            raise forms.ValidationError("Enter a score or a comment.")
        return fields


class AddToQueueForm(forms.Form):
    """The queue that runs are added to: one of the workspace, or a new one."""

    queue = forms.CharField(required=False, max_length=40)
    name = forms.CharField(required=False, max_length=NAME_LENGTH, label="Name of the new queue")

    def clean_queue(self) -> UUID | None:
        text = self.cleaned_data["queue"]
        if text in {"", "new"}:
            return None
        try:
            return UUID(text)
        except ValueError:
            raise forms.ValidationError("Choose a queue.") from None

    def clean(self) -> dict[str, Any]:
        fields: dict[str, Any] = super().clean() or {}
        if "queue" in fields and fields["queue"] is None and not fields.get("name"):
            raise forms.ValidationError("Choose a queue, or name a new one.")
        return fields
