"""Verification of email addresses.

The platform reads `User.email_verified_at`; allauth stores an `EmailAddress` row per address. The
signal receivers here keep both in step.
"""

from __future__ import annotations

from typing import Any

from allauth.account.models import EmailAddress
from allauth.account.signals import email_changed, email_confirmed, user_signed_up
from django.db.models.signals import post_save
from django.dispatch import receiver
from django.utils import timezone

from apps.organizations.models import User

SKIP_SYNC = "_skip_email_address_sync"


def skip_sync(user: User) -> User:
    """Mark an unsaved user whose `EmailAddress` row allauth itself creates."""
    setattr(user, SKIP_SYNC, True)
    return user


@receiver(post_save, sender=User)
def add_address(sender: type[User], instance: User, *, created: bool, **_: Any) -> None:
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
