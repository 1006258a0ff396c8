"""Feedback tokens, with which a browser gives feedback without an API key."""

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
from apps.core.tenancy import check_row_limit
from apps.feedback import errors
from apps.feedback.models import Feedback, FeedbackConfig, FeedbackToken
from apps.feedback.services.feedback import create_feedback
from apps.feedback.wire import TokenFeedback, WireFeedback

DEFAULT_LIFETIME = timedelta(hours=3)
MAX_TOKENS = 100_000
_DELETE_AFTER = timedelta(days=30)
_BATCH_SIZE = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRequest:
    """A token to issue."""

    run_id: UUID
    key: str
    expires_at: datetime
    config: dict[str, Any] | None = None
    id: UUID | None = None


@transaction.atomic
def issue_tokens(workspace_id: UUID, requests: Sequence[TokenRequest]) -> list[FeedbackToken]:
    """Issue all tokens or none. A repeated id returns the existing token.

    The run need not exist yet. The config of a request is saved if its key has none.
    """
    issued = []
    for request in requests:
        token = uuid4()
        row = FeedbackToken(
            id=request.id or uuid7(),
            workspace_id=workspace_id,
            token_hash=_hash(token),
            token=secrets.encrypt(str(token)),
            run_id=request.run_id,
            key=request.key,
            expires_at=request.expires_at,
        )
        issued.append(_insert_or_get(row))
    tokens = FeedbackToken.objects.for_workspace(workspace_id).filter(expires_at__gt=timezone.now())
    check_row_limit(tokens, MAX_TOKENS, "valid feedback tokens of a workspace")
    configs = [
        FeedbackConfig(workspace_id=workspace_id, key=request.key, config=request.config)
        for request in requests
        if request.config is not None
    ]
    FeedbackConfig.objects.for_workspace(workspace_id).bulk_create(configs, ignore_conflicts=True)
    return issued


def _insert_or_get(row: FeedbackToken) -> FeedbackToken:
    try:
        with transaction.atomic():
            row.save(force_insert=True)
    except IntegrityError:
        tokens = FeedbackToken.objects.for_workspace(row.workspace_id)
        existing = tokens.filter(pk=row.pk, run_id=row.run_id, key=row.key).first()
        # The error is the same for an id of another run and of another workspace.
        if existing is None:
            raise errors.FeedbackIdTaken from None
        return existing
    return row


def token_url(row: FeedbackToken) -> str:
    """Return the URL to which feedback for the token is sent."""
    return f"{settings.API_BASE_URL}/feedback/tokens/{secrets.decrypt(row.token)}"


def find_valid_token(token: UUID) -> FeedbackToken:
    """Return the row of a token or of a token's id, which `langsmith` redeems alike.

    Raises `FeedbackTokenUnknown` or `FeedbackTokenExpired`.
    """
    tokens = FeedbackToken.objects.across_workspaces(reason="the token determines the workspace")
    row = tokens.filter(token_hash=_hash(token)).first() or tokens.filter(pk=token).first()
    if row is None:
        raise errors.FeedbackTokenUnknown
    if row.is_expired(timezone.now()):
        raise errors.FeedbackTokenExpired
    return row


def redeem(row: FeedbackToken, body: TokenFeedback) -> Feedback:
    """Store feedback on the token's run and key; each call stores another entry."""
    feedback = WireFeedback(
        key=row.key,
        run_id=row.run_id,
        score=body.score,
        value=body.value,
        comment=body.comment,
        correction=body.correction,
        feedback_source={"type": "api", "metadata": body.metadata or {}},
        extend_trace_retention=body.extend_trace_retention,
    )
    return create_feedback(row.workspace_id, feedback, user_id=None)


def _hash(token: UUID) -> bytes:
    return hashlib.sha256(str(token).encode()).digest()


def delete_expired() -> None:
    """Delete tokens 30 days after they expire; until then, their URLs return `410`."""
    tokens = FeedbackToken.objects.across_workspaces(reason="deletes expired tokens")
    expired = tokens.filter(expires_at__lt=timezone.now() - _DELETE_AFTER)
    while True:
        batch = list(expired.values_list("pk", flat=True)[:_BATCH_SIZE])
        tokens.filter(pk__in=batch).delete()
        if len(batch) < _BATCH_SIZE:
            return
