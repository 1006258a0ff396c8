"""The right to give one feedback, for those who hold no key: browsers of an application's users."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from django.conf import settings
from django.db import IntegrityError, transaction
from django.utils import timezone

from apps.core import secrets
from apps.core.ids import uuid7
from apps.feedback import errors
from apps.feedback.models import Feedback, FeedbackConfig, FeedbackToken
from apps.feedback.services.feedback import give_feedback
from apps.feedback.wire import WireAnswer, WireFeedback

LIFE = timedelta(hours=3)
_REMEMBERED = timedelta(days=30)
_AT_ONCE = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A token as it is asked for."""

    run_id: UUID
    key: str
    expires_at: datetime
    config: dict[str, Any] | None = None
    id: UUID | None = None


@transaction.atomic
def issue_tokens(workspace_id: UUID, wanted: Sequence[Wanted]) -> list[FeedbackToken]:
    """Make tokens, all or none. A repeat of an id returns the token that is there.

    The run may be unknown still. A config that comes along is the key's, if it has none yet.
    """
    issued = []
    for one in wanted:
        token = uuid4()
        row = FeedbackToken(
            id=one.id or uuid7(),
            workspace_id=workspace_id,
            token_hash=_hash(token),
            token=secrets.encrypt(str(token)),
            run_id=one.run_id,
            key=one.key,
            expires_at=one.expires_at,
        )
        issued.append(_kept(row))
    configs = [
        FeedbackConfig(workspace_id=workspace_id, key=one.key, config=one.config)
        for one in wanted
        if one.config is not None
    ]
    FeedbackConfig.objects.for_workspace(workspace_id).bulk_create(configs, ignore_conflicts=True)
    return issued


def _kept(row: FeedbackToken) -> FeedbackToken:
    try:
        with transaction.atomic():
            row.save(force_insert=True)
    except IntegrityError:
        tokens = FeedbackToken.objects.for_workspace(row.workspace_id)
        there = tokens.filter(pk=row.pk, run_id=row.run_id, key=row.key).first()
        if there is None:  # of another run, or another workspace: say no more than that
            raise errors.FeedbackIdTaken from None
        return there
    return row


def address_of(row: FeedbackToken) -> str:
    """Where the token's holder says it."""
    return f"{settings.BASE_URL}/feedback/tokens/{secrets.decrypt(row.token)}"


def valid_token(token: UUID) -> FeedbackToken:
    """`FeedbackTokenUnknown` when there is none, `FeedbackTokenExpired` when its time is over."""
    tokens = FeedbackToken.objects.across_workspaces(reason="the token itself names the workspace")
    row = tokens.filter(token_hash=_hash(token)).first()
    if row is None:
        raise errors.FeedbackTokenUnknown
    if row.is_expired(timezone.now()):
        raise errors.FeedbackTokenExpired
    return row


def redeem(row: FeedbackToken, said: WireAnswer) -> Feedback:
    """Give the feedback that the token is for; said again it takes the place of the first."""
    one = WireFeedback(
        id=row.pk,
        key=row.key,
        run_id=row.run_id,
        score=said.score,
        value=said.value,
        comment=said.comment,
        correction=said.correction,
        feedback_source={"type": "api", "metadata": said.metadata or {}},
        extend_trace_retention=said.extend_trace_retention,
    )
    return give_feedback(row.workspace_id, one, user_id=None)


def _hash(token: UUID) -> bytes:
    return hashlib.sha256(str(token).encode()).digest()


def delete_expired() -> None:
    """Remove tokens a month after their end; until then they answer that they have expired."""
    tokens = FeedbackToken.objects.across_workspaces(reason="removes what has expired, of all")
    old = tokens.filter(expires_at__lt=timezone.now() - _REMEMBERED)
    while True:
        some = list(old.values_list("pk", flat=True)[:_AT_ONCE])
        tokens.filter(pk__in=some).delete()
        if len(some) < _AT_ONCE:
            return
