"""The form of a rule with its judge."""

from __future__ import annotations

from decimal import Decimal
from typing import Any
from uuid import UUID

from django import forms

from apps.annotation.models import AnnotationQueue
from apps.core.json import dumps_text, loads
from apps.evaluators.judge_templates import CATEGORY, KINDS, NUMBER, YES_OR_NO, JudgeTemplate
from apps.evaluators.models import Evaluator, EvaluatorRule
from apps.evaluators.services.rules import (
    DEFAULT_CALLS_PER_DAY,
    MAX_CALLS_PER_DAY,
    MAX_FILTER_LENGTH,
)
from apps.evaluators.wire import (
    RuleBody,
    RuleChanges,
    RuleEvaluatorBody,
    SpendLimitBody,
    StructuredBody,
)
from apps.playground.services.catalogue import list_models
from apps.prompts.models import Repository, RepositoryType
from apps.providers.catalogue import PROVIDERS
from apps.providers.client import find_keys
from apps.tracing.forms import RunFilterField

MAX_TEXT_LENGTH = 100_000
MAX_PROMPTS = 500
MAX_QUEUES = 500
_MESSAGES = ("system", "human")


class RuleForm(forms.Form):
    """What all rules have in common."""

    is_code = False
    is_queue = False
    """Whether the rule has no evaluator."""

    name = forms.CharField(max_length=200, label="Name")
    sampling = forms.FloatField(
        min_value=0,
        max_value=100,
        initial=100,
        label="Sample (per cent)",
        help_text="The share of the runs that is scored.",
    )
    filter = RunFilterField(
        max_length=MAX_FILTER_LENGTH,
        required=False,
        label="Filter",
        help_text='Only matching runs are scored, such as `eq(name, "agent")`. Empty: all runs.',
    )
    max_calls_per_day = forms.IntegerField(
        min_value=1,
        max_value=MAX_CALLS_PER_DAY,
        initial=DEFAULT_CALLS_PER_DAY,
        label="Calls a day",
    )
    queue = forms.ChoiceField(
        required=False,
        label="Add to queue",
        help_text="Matching runs also wait in this annotation queue for people to review.",
    )

    def __init__(
        self, workspace_id: UUID, data: Any = None, *, rule: EvaluatorRule | None, **options: Any
    ) -> None:
        super().__init__(data, **options)
        self.rule = rule
        queues = AnnotationQueue.objects.for_workspace(workspace_id).order_by("-updated_at", "pk")
        names = list(queues.values_list("pk", "name")[:MAX_QUEUES])
        if rule is not None and rule.annotation_queue is not None:
            names.append((rule.annotation_queue.pk, rule.annotation_queue.name))
        choices = {str(pk): name for pk, name in names}
        self._set_choices("queue", [("", "No queue"), *choices.items()])

    def _set_choices(self, name: str, choices: list[tuple[str, str]]) -> None:
        self.fields[name].choices = choices  # type: ignore[attr-defined]

    def limits(self) -> dict[str, Any]:
        """The rule's own fields of a valid form."""
        values = self.cleaned_data
        return {
            "sampling_rate": values["sampling"] / 100,
            "filter": values["filter"],
            # A rule without an evaluator makes no calls.
            "max_calls_per_day": values.get("max_calls_per_day") or DEFAULT_CALLS_PER_DAY,
            "add_to_annotation_queue_id": UUID(values["queue"]) if values["queue"] else None,
        }

    @staticmethod
    def values_of(rule: EvaluatorRule) -> dict[str, Any]:
        """The initial values for a rule."""
        return {
            "name": rule.name,
            "sampling": rule.sampling_rate * 100,
            "filter": rule.filter,
            "max_calls_per_day": rule.max_calls_per_day,
            "queue": str(rule.annotation_queue_id or ""),
        }


class EvaluatorRuleForm(RuleForm):
    """Creates or changes a rule with its judge."""

    repository = forms.ChoiceField(
        required=False,
        label="Prompt",
        help_text="A prompt of the workspace has its own messages and response schema.",
    )
    commit = forms.CharField(
        max_length=200,
        required=False,
        label="Commit or tag",
        help_text="Only for a prompt of the workspace. Empty for the latest commit.",
    )
    system = forms.CharField(
        max_length=MAX_TEXT_LENGTH,
        required=False,
        label="System message",
        widget=forms.Textarea(attrs={"rows": 5}),
    )
    prompt = forms.CharField(
        max_length=MAX_TEXT_LENGTH,
        required=False,
        label="Message",
        widget=forms.Textarea(attrs={"rows": 8}),
        help_text="`{{input}}`, `{{output}}`, `{{reference}}` and `{{run.error}}` are filled in.",
    )
    key = forms.CharField(
        max_length=200, required=False, label="Feedback key", help_text="The name of the score."
    )
    kind = forms.ChoiceField(label="Result", choices=list(KINDS.items()))
    categories = forms.CharField(
        max_length=2000,
        required=False,
        label="Categories",
        help_text="Only for a category: the choices, separated by commas.",
    )
    description = forms.CharField(
        max_length=1000,
        required=False,
        label="What the result means",
        help_text="The model reads it with the name of the score.",
    )
    schema = forms.CharField(
        max_length=MAX_TEXT_LENGTH,
        required=False,
        label="Response schema",
        widget=forms.Textarea(attrs={"rows": 6}),
        help_text="JSON Schema for several scores, in place of key, result and categories.",
    )
    provider = forms.ChoiceField(required=False, label="Provider")
    model = forms.CharField(
        max_length=200,
        required=False,
        label="Model",
        help_text="Empty for the model of a prompt of the workspace.",
    )
    mapping = forms.CharField(
        max_length=MAX_TEXT_LENGTH,
        required=False,
        label="Variables",
        widget=forms.Textarea(attrs={"rows": 3}),
        help_text="One `variable = path` in each line, such as `output = output.answer`. Variables"
        " without a line are the value of their name.",
    )
    weekly_limit = forms.DecimalField(
        required=False,
        min_value=Decimal("0.0001"),  # 0 would be stored as no limit
        max_digits=12,
        decimal_places=4,
        label="Dollars a week",
        help_text="Empty for no limit. Needs a model whose price is known.",
    )

    def __init__(
        self,
        workspace_id: UUID,
        data: Any = None,
        *,
        rule: EvaluatorRule | None = None,
        template: JudgeTemplate | None = None,
    ) -> None:
        initial = _initial(rule) if rule is not None else _initial_of_template(template)
        super().__init__(workspace_id, data, rule=rule, initial=initial)
        evaluator = None if rule is None else rule.evaluator
        self.may_change_judge = evaluator is None or _is_shown(evaluator)
        prompts = Repository.objects.for_workspace(workspace_id).filter(
            type=RepositoryType.PROMPT, is_archived=False
        )
        handles = list(prompts.order_by("handle").values_list("handle", flat=True)[:MAX_PROMPTS])
        self._set_choices("repository", [("", "Messages below"), *((h, h) for h in handles)])
        keys = find_keys(workspace_id)
        providers = sorted(PROVIDERS.values(), key=lambda item: item.id not in keys)
        self._set_choices(
            "provider",
            [
                (item.id, item.name if item.id in keys else f"{item.name} (no key)")
                for item in providers
            ],
        )
        self.missing_keys = [
            (item.key_name, item.name)
            for item in providers
            if item.needs_key and item.id not in keys
        ]
        """Name of the secret and provider."""
        self.models = [(item.name, list_models(item)) for item in providers]
        if not self.may_change_judge:
            for name in JUDGE_FIELDS:
                self.fields[name].disabled = True

    def clean_mapping(self) -> dict[str, str]:
        mapping = {}
        for line in self.cleaned_data["mapping"].splitlines():
            name, separator, path = line.partition("=")
            if not line.strip():
                continue
            if not separator or not name.strip() or not path.strip():
                raise forms.ValidationError(f"`{line.strip():.100}` is not `variable = path`.")
            mapping[name.strip()] = path.strip()
        return mapping

    def clean_schema(self) -> dict[str, Any] | None:
        text: str = self.cleaned_data["schema"].strip()
        try:
            schema = loads(text) if text else None
        except ValueError:
            raise forms.ValidationError("This is not JSON.") from None
        if schema is not None and not isinstance(schema, dict):
            raise forms.ValidationError("This is not a JSON object.")
        return schema

    def clean(self) -> dict[str, Any]:
        values: dict[str, Any] = super().clean() or {}
        if values.get("repository") or self.errors or not self.may_change_judge:
            return values
        if not values.get("prompt") and not values.get("system"):
            self.add_error("prompt", "Write a message, or select a prompt.")
        if not values.get("model"):
            self.add_error("model", "Name the model.")
        if values.get("schema") is None and not values.get("key"):
            self.add_error("key", "Name the score.")
        if values.get("kind") == CATEGORY and not values.get("schema") and not _categories(values):
            self.add_error("categories", "Enter at least one category.")
        return values

    def judge(self) -> StructuredBody:
        """The judge of a valid form."""
        values = self.cleaned_data
        model = None
        if values["model"]:
            model = {"provider": values["provider"], "model": values["model"].strip()}
        if values["repository"]:
            commit = values["commit"].strip() or "latest"
            return StructuredBody(
                hub_ref=f"{values['repository']}:{commit}",
                model=model,
                variable_mapping=values["mapping"],
            )
        texts = zip(_MESSAGES, (values["system"], values["prompt"]), strict=True)
        return StructuredBody(
            prompt=[(role, text) for role, text in texts if text],
            template_format="mustache",
            schema=values["schema"] or _build_schema(values),
            model=model,
            variable_mapping=values["mapping"],
        )

    def body(self, *, dataset_id: UUID | None, project_id: UUID | None) -> RuleBody:
        """The new rule of a valid form."""
        return RuleBody(
            display_name=self.cleaned_data["name"],
            dataset_id=dataset_id,
            session_id=project_id,
            evaluators=[RuleEvaluatorBody(self.judge())],
            **self.limits(),
        )

    def changes(self) -> RuleChanges:
        """The changes of a valid form."""
        changes = RuleChanges(display_name=self.cleaned_data["name"], **self.limits())
        if self.may_change_judge:
            changes.evaluators = [RuleEvaluatorBody(self.judge())]
        return changes

    def limits(self) -> dict[str, Any]:
        limit = self.cleaned_data["weekly_limit"]
        spend_limit = None if not limit else SpendLimitBody(str(limit))
        return super().limits() | {"spend_limit": spend_limit}


JUDGE_FIELDS = (
    *("repository", "commit", "system", "prompt", "key", "kind", "categories", "description"),
    *("schema", "provider", "model", "mapping"),
)
"""Of the judge; they cannot be changed through a rule if other rules may use it."""


def _is_shown(evaluator: Evaluator) -> bool:
    """Whether the form has all of the judge, which no other rule may use."""
    setting = evaluator.setting or {}
    roles = [item["role"] for item in setting.get("messages") or ()]
    model = evaluator.model or setting.get("model") or {}
    return (
        evaluator.is_part_of_rule
        and evaluator.saved_settings_id is None
        and model.keys() <= {"provider", "model"}
        and len(set(roles)) == len(roles)
        and set(roles) <= set(_MESSAGES)
        and (not roles or setting.get("template_format") == "mustache")
    )


def _categories(values: dict[str, Any]) -> list[str]:
    texts = (text.strip() for text in values["categories"].split(","))
    return list(dict.fromkeys(text for text in texts if text))


def _build_schema(values: dict[str, Any]) -> dict[str, Any]:
    result: dict[str, Any] = {"type": "string" if values["kind"] == CATEGORY else values["kind"]}
    if values["kind"] == CATEGORY:
        result["enum"] = _categories(values)
    if values["description"]:
        result["description"] = values["description"]
    reasoning = {"type": "string", "description": "The reasons, step by step."}
    return {
        "title": "judgement",
        "type": "object",
        # The reasons come first, so that the model thinks before it decides.
        "properties": {"reasoning": reasoning, values["key"].strip(): result},
        "required": ["reasoning", values["key"].strip()],
        "additionalProperties": False,
    }


def _read_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """The fields of a schema that the form can build; else the schema as JSON."""
    properties = schema.get("properties") or {}
    keys = [name for name in properties if name != "reasoning"]
    if len(keys) == 1 and isinstance(properties[keys[0]], dict):
        result = properties[keys[0]]
        values = {
            "key": keys[0],
            "kind": CATEGORY if "enum" in result else result.get("type"),
            "categories": ", ".join(str(item) for item in result.get("enum") or ()),
            "description": result.get("description", ""),
        }
        if values["kind"] in {YES_OR_NO, NUMBER, CATEGORY} and _build_schema(values) == schema:
            return values
    return {"kind": YES_OR_NO, "schema": dumps_text(schema)}


def _initial_of_template(template: JudgeTemplate | None) -> dict[str, Any]:
    if template is None:
        return {}
    names = ("system", "prompt", "key", "description", "kind", "categories")
    values = {name: getattr(template, name) for name in names}
    return values | {"name": template.label if template.key else ""}


def _initial(rule: EvaluatorRule) -> dict[str, Any]:
    evaluator = rule.evaluator
    assert evaluator is not None  # noqa: S101  (a rule without one has another form)
    setting = evaluator.setting or {}
    model = evaluator.model or setting.get("model") or {}
    texts: dict[str, str] = {}
    for message in setting.get("messages") or ():
        if isinstance(message.get("content"), str):
            texts.setdefault(message["role"], message["content"])
    return {
        **RuleForm.values_of(rule),
        "repository": "" if evaluator.prompt is None else evaluator.prompt.handle,
        "commit": evaluator.commit_name,
        "system": texts.get("system", ""),
        "prompt": texts.get("human", ""),
        "provider": model.get("provider", ""),
        "model": model.get("model", ""),
        "mapping": "\n".join(f"{a} = {b}" for a, b in evaluator.variable_mapping.items()),
        "weekly_limit": rule.weekly_limit_usd,
        **_read_schema(setting.get("response_schema") or {}),
    }
