"""Forms of the tracing pages."""

from __future__ import annotations

from typing import Any

from django import forms

from apps.tracing.models import Project, TraceTier
from apps.tracing.services.projects import MAX_NAME_LENGTH


class ProjectForm(forms.Form):
    name = forms.CharField(max_length=MAX_NAME_LENGTH, label="Name")
    description = forms.CharField(
        max_length=10_000, required=False, widget=forms.Textarea, label="Description"
    )
    trace_tier = forms.ChoiceField(
        choices=[(TraceTier.LONG, "Long-lived"), (TraceTier.SHORT, "Short-lived")],
        label="Retention tier",
        help_text=(
            "Short-lived applies to new traces only. "
            "Long-lived applies to all traces of the project."
        ),
    )
    long_days = forms.IntegerField(
        min_value=1,
        max_value=36_600,
        required=False,
        label="Long-lived retention, days",
        help_text="Leave empty to use the workspace default.",
    )

    @classmethod
    def of(cls, project: Project, data: Any = None) -> ProjectForm:
        first = {
            "name": project.name,
            "description": project.description or "",
            "trace_tier": project.trace_tier,
            "long_days": project.long_days,
        }
        return cls(data, initial=first)

    @property
    def changes(self) -> dict[str, Any]:
        """Return the fields that differ from the project's."""
        return {name: self.cleaned_data[name] for name in self.changed_data}
