"""Forms of the prompt pages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django import forms

from apps.core.json import loads
from apps.prompts.api.serializers import MAX_README_LENGTH
from apps.prompts.messages import (
    F_STRING,
    FORMATS,
    PLACEHOLDER,
    PromptMessage,
    PromptView,
    find_variables,
    new_manifest,
    replace_messages,
)
from apps.prompts.models import Repository
from apps.prompts.services.repositories import HANDLE_PATTERN

MAX_MESSAGES = 100
_ROLES = [
    ("system", "System"),
    ("human", "Human"),
    ("ai", "Assistant"),
    (PLACEHOLDER, "Messages placeholder"),
]


class RepositoryForm(forms.Form):
    """The fields of a prompt."""

    description = forms.CharField(max_length=1000, required=False)
    tags = forms.CharField(
        required=False, label="Labels", help_text="Separated by commas.", max_length=2000
    )
    readme = forms.CharField(
        required=False,
        max_length=MAX_README_LENGTH,
        strip=False,
        widget=forms.Textarea(attrs={"rows": 6}),
        help_text="Markdown.",
    )

    def clean_tags(self) -> list[str]:
        names = (name.strip() for name in self.cleaned_data["tags"].split(","))
        labels = list(dict.fromkeys(name for name in names if name))
        if len(labels) > 50 or any(len(label) > 100 for label in labels):
            raise forms.ValidationError("At most 50 labels of 100 characters each.")
        return labels


class NewPromptForm(RepositoryForm):
    handle = forms.RegexField(
        HANDLE_PATTERN,
        max_length=100,
        label="Name",
        help_text="Lower-case letters, digits, `-` and `_`. Programs pull the prompt by this name.",
        error_messages={
            "invalid": "Start with a lower-case letter; use only these, digits, - and _."
        },
    )
    readme = None  # type: ignore[assignment]
    field_order = ["handle", "description", "tags"]


class PromptSettingsForm(RepositoryForm):
    is_public = forms.BooleanField(
        required=False,
        label="Public",
        help_text="Everyone who reaches this installation may pull it, also without a key.",
    )
    is_archived = forms.BooleanField(
        required=False, label="Archived", help_text="Hidden from lists; it can still be pulled."
    )

    @classmethod
    def for_repository(
        cls, repository: Repository, data: Mapping[str, Any] | None
    ) -> PromptSettingsForm:
        return cls(
            data,
            initial={
                "description": repository.description,
                "tags": ", ".join(repository.tags),
                "readme": repository.readme,
                "is_public": repository.is_public,
                "is_archived": repository.is_archived,
            },
        )


class TagForm(forms.Form):
    name = forms.CharField(max_length=100, label="Tag")


class MessageForm(forms.Form):
    role = forms.ChoiceField(choices=_ROLES, initial="human")
    text = forms.CharField(
        required=False, strip=False, widget=forms.Textarea(attrs={"rows": 4}), label="Text"
    )


MessageFormSet = forms.formset_factory(
    MessageForm, extra=0, max_num=MAX_MESSAGES, absolute_max=MAX_MESSAGES
)


class CommitForm(forms.Form):
    """The description of a commit, the parent that its author saw, and the template format."""

    parent = forms.CharField(required=False, max_length=64, widget=forms.HiddenInput)
    template_format = forms.ChoiceField(
        choices=[(F_STRING, "{variable}"), ("mustache", "{{variable}}")],
        label="Variables are written as",
        initial=F_STRING,
    )
    description = forms.CharField(max_length=1000, required=False, label="What changed")


class ManifestForm(forms.Form):
    """A prompt that is not a list of plain texts, as JSON."""

    parent = forms.CharField(required=False, max_length=64, widget=forms.HiddenInput)
    manifest = forms.CharField(
        strip=False, widget=forms.Textarea(attrs={"rows": 24}), label="Manifest"
    )
    description = forms.CharField(max_length=1000, required=False, label="What changed")

    def clean_manifest(self) -> Any:
        try:
            return loads(self.cleaned_data["manifest"])
        except ValueError:
            raise forms.ValidationError("This is not valid JSON.") from None


class MessagesEditor:
    """The commit form with its messages."""

    def __init__(self, view: PromptView, parent: str, data: Mapping[str, Any] | None) -> None:
        initial = [{"role": message.role, "text": message.text} for message in view.messages]
        self.is_text = len(initial) == 1 and initial[0]["role"] == "text"
        """Whether the prompt is one text without roles."""
        if self.is_text:
            initial[0]["role"] = "human"
        self.form = CommitForm(
            data, initial={"parent": parent, "template_format": view.template_format}
        )
        self.formset = MessageFormSet(data, initial=initial or [{"role": "human"}], prefix="m")

    def is_valid(self) -> bool:
        if not self.form.is_valid():
            return False
        if not self.formset.is_valid():
            problems = self.formset.non_form_errors() or ["A message is invalid."]
            self.form.add_error(None, str(problems[0]))
            return False
        try:
            for message in self.messages():
                if message.role != PLACEHOLDER:
                    find_variables(message.text, self.template_format)
                elif not message.text.isidentifier():
                    raise ValueError("A placeholder contains the name of one variable.")
        except ValueError as error:
            self.form.add_error(None, str(error))
            return False
        if not self.messages():
            self.form.add_error(None, "A prompt needs at least one message.")
            return False
        return True

    @property
    def template_format(self) -> str:
        value: str = self.form.cleaned_data["template_format"]
        return value if value in FORMATS else F_STRING

    def messages(self) -> list[PromptMessage]:
        rows = [form.cleaned_data for form in self.formset if form.cleaned_data]
        return [PromptMessage(row["role"], row["text"]) for row in rows if row["text"]]

    def to_manifest(self, content: dict[str, Any] | None) -> dict[str, Any]:
        return replace_messages(content or new_manifest(), self.messages(), self.template_format)
