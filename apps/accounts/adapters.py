"""django-allauth adapters: sign-up policy, user fields, encryption of second factors."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from allauth.account.adapter import DefaultAccountAdapter
from allauth.core.exceptions import ImmediateHttpResponse
from allauth.mfa.adapter import DefaultMFAAdapter
from allauth.socialaccount.adapter import DefaultSocialAccountAdapter
from django.conf import settings
from django.http import HttpRequest
from django.shortcuts import render

from apps.accounts import sign_in
from apps.accounts.signals import skip_sync
from apps.core import feature_switches, secrets
from apps.organizations.models import User


class AccountAdapter(DefaultAccountAdapter):  # type: ignore[misc]  # django-allauth has no types
    def is_open_for_signup(self, request: HttpRequest) -> bool:
        """Allow sign-up for invited users, or for all if the operator enabled it."""
        return (
            feature_switches.is_enabled("sign_up")
            or sign_in.get_pending_invitation(request) is not None
        )

    def new_user(self, request: HttpRequest) -> User:
        return skip_sync(User())

    def save_user(
        self,
        request: HttpRequest,
        user: User,
        form: Any,
        commit: bool = True,  # noqa: FBT001, FBT002 -- allauth's signature
    ) -> User:
        user.name = form.cleaned_data.get("name", "")
        saved: User = super().save_user(request, user, form, commit)
        return saved

    def get_client_ip(self, request: HttpRequest) -> str:
        """Return the client address that the proxy middleware determined."""
        return str(request.META["REMOTE_ADDR"] or "0.0.0.0")  # noqa: S104 -- a Unix socket has no address

    def is_ajax(self, request: HttpRequest) -> bool:
        """Answer scripts with pages as well: allauth's JSON has another error shape."""
        return False

    def send_mail(self, template_prefix: str, email: str, context: dict[str, Any]) -> None:
        """Send a mail whose links start with `PUBLIC_URL`.

        allauth builds links from the Host header, which the client can forge.
        """
        site = urlsplit(settings.BASE_URL)
        links = {
            name: urlsplit(value)._replace(scheme=site.scheme, netloc=site.netloc).geturl()
            for name, value in context.items()
            if name.endswith("_url")
        }
        current_site = {"domain": site.netloc, "name": site.netloc}
        mail_context = {**context, **links, "current_site": current_site}
        super().send_mail(template_prefix, email, mail_context)

    def add_message(self, *args: Any, **kwargs: Any) -> None:
        """Suppress the messages about signing in and out."""
        template = kwargs.get("message_template") or (args[2] if len(args) > 2 else "")
        if template not in {"account/messages/logged_in.txt", "account/messages/logged_out.txt"}:
            super().add_message(*args, **kwargs)


class SocialAdapter(DefaultSocialAccountAdapter):  # type: ignore[misc]
    def is_open_for_signup(self, request: HttpRequest, sociallogin: Any) -> bool:
        """Allow sign-up for users of the configured identity providers."""
        return True

    def new_user(self, request: HttpRequest, sociallogin: Any) -> User:
        return skip_sync(User())

    def populate_user(self, request: HttpRequest, sociallogin: Any, data: dict[str, Any]) -> User:
        user: User = super().populate_user(request, sociallogin, data)
        parts = [data.get("first_name"), data.get("last_name")]
        user.name = (data.get("name") or " ".join(filter(None, parts)))[:150]
        return user

    def on_authentication_error(self, request: HttpRequest, provider: Any, **_: Any) -> None:
        """Show our own page, without the provider's message."""
        raise ImmediateHttpResponse(
            render(request, "socialaccount/authentication_error.html", status=403)
        )


class MFAAdapter(DefaultMFAAdapter):  # type: ignore[misc]
    def encrypt(self, text: str) -> str:
        return secrets.encrypt(text).decode()

    def decrypt(self, encrypted_text: str) -> str:
        return secrets.decrypt(encrypted_text.encode())
