from __future__ import annotations

from typing import Any

from django import forms
from django.contrib.auth import authenticate
from django.http import HttpRequest

from apps.organizations.models import User


class SignInForm(forms.Form):
    """Email and password. `user` is set once the form is valid."""

    email = forms.EmailField(max_length=254, label="Email")
    password = forms.CharField(max_length=1024, strip=False, widget=forms.PasswordInput)

    def __init__(self, *args: Any, request: HttpRequest, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.request = request
        self.user: User | None = None

    def clean(self) -> dict[str, Any]:
        email, password = self.cleaned_data.get("email"), self.cleaned_data.get("password")
        if email and password:
            user = authenticate(self.request, username=email.strip().lower(), password=password)
            if not isinstance(user, User):
                raise forms.ValidationError("Email and password do not match.")
            self.user = user
        return self.cleaned_data
