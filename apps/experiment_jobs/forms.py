"""The form that starts an experiment on a deployment."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django import forms

from apps.core.errors import AppError
from apps.core.json import loads
from apps.datasets.models import Dataset, DatasetTag
from apps.datasets.services.tags import list_splits
from apps.datasets.services.versions import LATEST, resolve_as_of
from apps.deployments.models import Deployment
from apps.experiment_jobs.evaluator_choice import list_choices
from apps.experiment_jobs.input_mapping import check_mapping
from apps.experiment_jobs.services.jobs import (
    MAX_CONCURRENCY,
    MAX_PREFIX_LENGTH,
    MAX_REPETITIONS,
    JobPlan,
)


class ExperimentJobForm(forms.Form):
    deployment = forms.ModelChoiceField(
        queryset=Deployment.unscoped.none(),
        label="Deployment",
        empty_label="Select a deployment",
    )
    assistant = forms.CharField(
        label="Assistant",
        required=False,
        max_length=255,
        help_text="A graph's name or an assistant's id. Empty for the deployment's only graph.",
    )
    name = forms.CharField(
        label="Name",
        required=False,
        max_length=MAX_PREFIX_LENGTH,
        help_text="The start of the experiment's name. Empty for the deployment's name.",
    )
    version = forms.ChoiceField(label="Version")
    split = forms.ChoiceField(label="Split", required=False)
    repetitions = forms.IntegerField(
        label="Repetitions", min_value=1, max_value=MAX_REPETITIONS, initial=1
    )
    concurrency = forms.IntegerField(
        label="Concurrency", min_value=1, max_value=MAX_CONCURRENCY, initial=4
    )
    mapping = forms.CharField(
        label="Input mapping",
        required=False,
        strip=True,
        max_length=100_000,
        widget=forms.Textarea(attrs={"rows": 4}),
        help_text=(
            "JSON of the run's input, in which `{{field}}` is replaced by that field of the"
            " example's inputs. Empty for the example's inputs as they are."
        ),
    )

    evaluators = forms.MultipleChoiceField(
        label="Evaluators", required=False, widget=forms.CheckboxSelectMultiple
    )

    def __init__(self, dataset: Dataset, data: Any = None) -> None:
        super().__init__(data)
        self.dataset = dataset
        choices = [(str(item.rule_id), item.name) for item in list_choices(dataset)]
        self.fields["evaluators"].choices = choices  # type: ignore[attr-defined]
        self.initial["evaluators"] = [value for value, _ in choices]
        deployments = Deployment.objects.for_workspace(dataset.workspace_id).present()
        serving = deployments.filter(active_revision__isnull=False).order_by("name")
        self.fields["deployment"].queryset = serving  # type: ignore[attr-defined]
        self.initial["deployment"] = serving.values_list("pk", flat=True).first()
        tags = DatasetTag.objects.for_workspace(dataset.workspace_id).filter(dataset=dataset)
        names = [LATEST, *tags.order_by("name").values_list("name", flat=True)[:200]]
        self.fields["version"].choices = [(name, name) for name in names]  # type: ignore[attr-defined]
        splits = list_splits(dataset, None)
        self.fields["split"].choices = [  # type: ignore[attr-defined]
            ("", "All examples"),
            *((name, name) for name in splits),
        ]

    @property
    def has_evaluators(self) -> bool:
        return bool(self.initial["evaluators"])

    @property
    def has_deployments(self) -> bool:
        return bool(self.initial["deployment"])

    def clean_mapping(self) -> dict[str, Any] | None:
        text: str = self.cleaned_data["mapping"]
        if not text:
            return None
        try:
            mapping = loads(text)
        except ValueError as error:
            raise forms.ValidationError(f"This is not JSON: {error}") from None
        try:
            check_mapping(mapping)
        except AppError as error:
            raise forms.ValidationError(error.detail) from None
        return mapping  # type: ignore[no-any-return]

    def to_plan(self) -> JobPlan:
        """Return the plan; raises `VersionNotFound` if the tag was deleted meanwhile."""
        cleaned = self.cleaned_data
        return JobPlan(
            dataset=self.dataset,
            deployment=cleaned["deployment"],
            assistant_id=cleaned["assistant"] or None,
            version_at=resolve_as_of(self.dataset, cleaned["version"]),
            splits=[cleaned["split"]] if cleaned["split"] else [],
            input_mapping=cleaned["mapping"],
            repetitions=cleaned["repetitions"],
            concurrency=cleaned["concurrency"],
            prefix=cleaned["name"] or None,
            evaluator_rule_ids=(
                [UUID(text) for text in cleaned["evaluators"]] if self.has_evaluators else None
            ),
        )
