"""Receivers of sign-in signals: verified email addresses, and audit entries of account changes.

The platform reads `User.email_verified_at`; allauth stores an `EmailAddress` row per address.
"""

from __future__ import annotations

from typing import Any

from allauth.account import signals as account
from allauth.account.models import EmailAddress
from allauth.account.signals import email_changed, email_confirmed, user_signed_up
from allauth.mfa import signals as mfa
from django.contrib.auth.signals import user_logged_out, user_login_failed
from django.db.models.signals import post_save
from django.dispatch import receiver
from django.utils import timezone

from apps.audit.actions import Action
from apps.audit.services import Target, record
from apps.organizations.models import User
from apps.organizations.services.members import record_user_action

SKIP_SYNC = "_skip_email_address_sync"


def skip_sync(user: User) -> User:
    """Mark an unsaved user whose `EmailAddress` row allauth itself creates."""
    setattr(user, SKIP_SYNC, True)
    return user


@receiver(post_save, sender=User)
def create_email_address(sender: type[User], instance: User, *, created: bool, **_: Any) -> None:
    if created and not getattr(instance, SKIP_SYNC, False):
        EmailAddress.objects.create(
            user=instance,
            email=instance.email,
            verified=instance.email_verified_at is not None,
            primary=True,
        )


@receiver(email_confirmed)
def mark_verified(sender: type[EmailAddress], email_address: EmailAddress, **_: Any) -> None:
    users = User.objects.filter(pk=email_address.user_id, email=email_address.email)
    users.update(email_verified_at=timezone.now())


@receiver(user_signed_up)
def mark_verified_by_idp(sender: type[User], user: User, **_: Any) -> None:
    """Copy a verification by the identity provider to the user."""
    if EmailAddress.objects.filter(user=user, email=user.email, verified=True).exists():
        User.objects.filter(pk=user.pk).update(email_verified_at=timezone.now())


@receiver(email_changed)
def sync_changed_address(
    sender: type[User], user: User, to_email_address: EmailAddress, **_: Any
) -> None:
    verified_at = timezone.now() if to_email_address.verified else None
    User.objects.filter(pk=user.pk).update(email_verified_at=verified_at)


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
    """Record only addresses of users: any other text may be a mistyped password."""
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
