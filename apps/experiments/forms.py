"""Forms of the experiment pages."""

from __future__ import annotations

from typing import Any

from django import forms

from apps.tracing.models import Project
from apps.tracing.services.projects import MAX_NAME_LENGTH


class ExperimentForm(forms.Form):
    name = forms.CharField(max_length=MAX_NAME_LENGTH)
    description = forms.CharField(
        max_length=10_000, required=False, widget=forms.Textarea(attrs={"rows": 4})
    )

    @classmethod
    def for_experiment(cls, project: Project, data: Any = None) -> ExperimentForm:
        initial = {"name": project.name, "description": project.description or ""}
        return cls(data, initial=initial)

    @property
    def changes(self) -> dict[str, Any]:
        """Return the fields that the user changed."""
        return {name: self.cleaned_data[name] for name in self.changed_data}
