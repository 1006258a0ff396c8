"""Which e-mail addresses are proved to be their people's.

`User.email_verified_at` is what the rest of the platform reads; allauth keeps a row for each
address, with the links it sent. Both are kept the same here.
"""

from __future__ import annotations

from typing import Any

from allauth.account.models import EmailAddress
from allauth.account.signals import email_changed, email_confirmed, user_signed_up
from django.db.models.signals import post_save
from django.dispatch import receiver
from django.utils import timezone

from apps.organizations.models import User

SKIP_SYNC = "_signs_up_by_themselves"


def skip_sync(user: User) -> User:
    """Mark a person who is about to be stored as one for whom allauth makes the row itself."""
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
    proved = User.objects.filter(pk=email_address.user_id, email=email_address.email)
    proved.update(email_verified_at=timezone.now())


@receiver(user_signed_up)
def mark_verified_by_idp(sender: type[User], user: User, **_: Any) -> None:
    """An identity provider may have proved the address already."""
    if EmailAddress.objects.filter(user=user, email=user.email, verified=True).exists():
        User.objects.filter(pk=user.pk).update(email_verified_at=timezone.now())


@receiver(email_changed)
def note_change(sender: type[User], user: User, to_email_address: EmailAddress, **_: Any) -> None:
    at = timezone.now() if to_email_address.verified else None
    User.objects.filter(pk=user.pk).update(email_verified_at=at)
