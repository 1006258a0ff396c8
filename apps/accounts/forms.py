from __future__ import annotations

from typing import Any

from django import forms
from django.http import HttpRequest

from apps.accounts import sign_in
from apps.organizations import services
from apps.organizations.errors import OrganizationNameTaken
from apps.organizations.models import Organization, User
from apps.organizations.services import organizations


class SignUpForm(forms.Form):
    """Additional sign-up fields; allauth's sign-up form inherits from this class."""

    name = forms.CharField(
        max_length=150,
        required=False,
        label="Your name",
        widget=forms.TextInput(attrs={"autocomplete": "name"}),
    )
    organization = forms.CharField(
        max_length=100,
        required=False,
        label="Organization",
        help_text="The name of your team. Leave empty to create a personal organization.",
        widget=forms.TextInput(attrs={"autocomplete": "organization"}),
    )

    field_order = ("email", "name", "organization", "password1")

    def clean_organization(self) -> str:
        name: str = self.cleaned_data["organization"].strip()
        if name and Organization.objects.filter(name=name).exists():
            raise forms.ValidationError(
                "An organization with this name already exists. Ask its administrators for an"
                " invitation."
            )
        return name

    def signup(self, request: HttpRequest, user: User) -> None:
        """Create an organization for the new user, unless they were invited."""
        if sign_in.get_pending_invitation(request) is not None:
            return
        name: Any = self.cleaned_data.get("organization")
        if name:
            try:
                services.create_organization(name=name, owner=user)
            except OrganizationNameTaken:  # created since the validation
                name = ""
        if not name:
            organizations.create_personal_organization(owner=user)
