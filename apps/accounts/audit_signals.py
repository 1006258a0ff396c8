"""Audit entries for sign-ins and account changes."""

from __future__ import annotations

from typing import Any

from allauth.account import signals as account
from allauth.mfa import signals as mfa
from django.contrib.auth.signals import user_logged_out, user_login_failed
from django.dispatch import receiver

from apps.audit.actions import Action
from apps.audit.services import Target, record
from apps.organizations.models import User
from apps.organizations.services.profile import record_user_action


@receiver(account.user_signed_up)
def _signed_up(user: User, **_: Any) -> None:
    record_user_action(Action.USER_SIGNED_UP, user, after={"email": user.email})


@receiver(account.user_logged_in)
def _signed_in(user: User, sociallogin: Any = None, **_: Any) -> None:
    method = "password" if sociallogin is None else sociallogin.account.provider
    record_user_action(Action.USER_SIGNED_IN, user, after={"method": method})


@receiver(user_logged_out)
def _signed_out(user: User | None, **_: Any) -> None:
    if isinstance(user, User):
        record_user_action(Action.USER_SIGNED_OUT, user)


@receiver(user_login_failed)
def _sign_in_failed(credentials: dict[str, Any], **_: Any) -> None:
    """Record the address only if it is a user's: otherwise it may be a mistyped password."""
    address = credentials.get("username") or credentials.get("email") or ""
    user = User.objects.filter(email=str(address).strip().lower()).first()
    if user is None:
        record(Action.USER_SIGN_IN_FAILED, Target("user"), after={"method": "password"})
    else:
        record_user_action(Action.USER_SIGN_IN_FAILED, user, after={"method": "password"})


@receiver(mfa.authentication_failed)
def _second_factor_failed(user: User, **_: Any) -> None:
    record_user_action(Action.USER_SIGN_IN_FAILED, user, after={"method": "second factor"})


@receiver((account.password_changed, account.password_set, account.password_reset))
def _password_changed(user: User, **_: Any) -> None:
    record_user_action(Action.USER_PASSWORD_CHANGED, user)


@receiver(account.email_changed)
def _email_changed(user: User, to_email_address: Any, from_email_address: Any, **_: Any) -> None:
    before = None if from_email_address is None else {"email": from_email_address.email}
    record_user_action(
        Action.USER_EMAIL_CHANGED, user, before=before, after={"email": to_email_address.email}
    )


@receiver((account.email_added, account.email_removed))
def _emails_changed(signal: Any, user: User, email_address: Any, **_: Any) -> None:
    is_new = signal is account.email_added
    values = {"after" if is_new else "before": {"email": getattr(email_address, "email", "")}}
    record_user_action(Action.USER_EMAIL_CHANGED, user, **values)


@receiver((mfa.authenticator_added, mfa.authenticator_reset))
def _second_factor_added(user: User, authenticator: Any, **_: Any) -> None:
    record_user_action(Action.USER_SECOND_FACTOR_ADDED, user, after={"method": authenticator.type})


@receiver(mfa.authenticator_removed)
def _second_factor_removed(user: User, authenticator: Any, **_: Any) -> None:
    record_user_action(
        Action.USER_SECOND_FACTOR_REMOVED, user, before={"method": authenticator.type}
    )
