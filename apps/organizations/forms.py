"""Settings forms. The views pass the choices, which depend on the organization."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django import forms
from django.forms.boundfield import BoundWidget

from apps.organizations.models import Workspace
from apps.organizations.permissions import DESCRIPTIONS, Level, permission_names
from apps.organizations.services.roles import AnyRole

Choices = list[tuple[str, str]]


def role_choices(roles: Sequence[AnyRole]) -> Choices:
    return [(str(role.id), role.display_name) for role in roles]


class WorkspaceForm(forms.Form):
    name = forms.CharField(max_length=100, label="Name")
    handle = forms.CharField(
        max_length=40,
        required=False,
        label="Handle",
        help_text="A unique name of the workspace. It is shown as the prefix of published items.",
    )


class NewWorkspaceForm(forms.Form):
    name = forms.CharField(max_length=100, label="Name")


class NewOrganizationForm(forms.Form):
    name = forms.CharField(max_length=100, label="Name")


class AddMemberForm(forms.Form):
    """Adds an organization member to a workspace."""

    user = forms.ChoiceField(label="Member")
    role = forms.ChoiceField(label="Role")

    def __init__(self, *args: Any, users: Choices, roles: Choices, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["user"].choices = [("", "Choose…"), *users]  # type: ignore[attr-defined]
        self.fields["role"].choices = roles  # type: ignore[attr-defined]


class RoleForm(forms.Form):
    """The role selector in a table row."""

    role = forms.ChoiceField(label="Role")

    def __init__(self, *args: Any, roles: Choices, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["role"].choices = roles  # type: ignore[attr-defined]


class InviteForm(forms.Form):
    email = forms.EmailField(
        max_length=254,
        required=False,
        label="Email",
        help_text="Leave empty to create a link that anyone can use to join.",
    )
    role = forms.ChoiceField(label="Organization role")
    workspaces = forms.MultipleChoiceField(
        required=False, label="Workspaces", widget=forms.CheckboxSelectMultiple
    )
    workspace_role = forms.ChoiceField(label="Workspace role")

    def __init__(
        self,
        *args: Any,
        roles: Choices,
        workspaces: Sequence[Workspace],
        workspace_roles: Choices,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        fields: dict[str, Any] = self.fields
        fields["role"].choices = roles
        fields["workspaces"].choices = [
            (str(workspace.pk), workspace.name) for workspace in workspaces
        ]
        fields["workspace_role"].choices = workspace_roles


class CustomRoleForm(forms.Form):
    display_name = forms.CharField(max_length=60, label="Name")
    description = forms.CharField(max_length=200, required=False, label="Description")
    permissions = forms.MultipleChoiceField(
        label="Permissions", widget=forms.CheckboxSelectMultiple
    )

    def __init__(self, *args: Any, level: Level, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        choices = [(name, DESCRIPTIONS[name]) for name in permission_names(level)]
        self.fields["permissions"].choices = choices  # type: ignore[attr-defined]

    @property
    def kinds(self) -> list[tuple[str, list[BoundWidget]]]:
        """The permission checkboxes, grouped by resource."""
        kinds: dict[str, list[BoundWidget]] = {}
        for box in self["permissions"].subwidgets:
            kind = str(box.data["value"]).partition(":")[0]
            kinds.setdefault(kind.replace("_", " ").capitalize(), []).append(box)
        return list(kinds.items())


class OrganizationForm(forms.Form):
    name = forms.CharField(max_length=100, label="Name")
    public_sharing_disabled = forms.BooleanField(
        required=False,
        label="Disable public links",
        help_text="Traces cannot be shared publicly. Existing public links stop working.",
    )
    personal_keys_disabled = forms.BooleanField(
        required=False,
        label="Disable personal keys",
        help_text="Existing personal keys stop working immediately.",
    )
    max_key_days = forms.IntegerField(
        required=False,
        min_value=1,
        max_value=36_500,
        label="Maximum key lifetime, in days",
        help_text="Applies to new keys. Empty for no limit.",
    )


class SecretForm(forms.Form):
    key = forms.RegexField(
        r"\A[A-Za-z_][A-Za-z0-9_.-]*\Z",
        max_length=200,
        label="Name",
        error_messages={"invalid": "Use letters, digits, dots, dashes and underscores only."},
    )
    value = forms.CharField(
        max_length=65_536,
        strip=False,
        label="Value",
        widget=forms.Textarea,
        help_text="The value is stored encrypted and never shown again.",
    )


class TagKeyForm(forms.Form):
    key = forms.CharField(max_length=100, label="Key")
    description = forms.CharField(max_length=500, required=False, label="Description")


class TagValueForm(forms.Form):
    value = forms.CharField(max_length=100, label="Value")
