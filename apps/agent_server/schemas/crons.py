"""Requests for crons."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Literal, Self
from uuid import UUID

from pydantic import AfterValidator, Field, create_model, model_validator

from apps.agent_server import schedules
from apps.agent_server.schemas.base import Body, JSONObject, Page, SortOrder
from apps.agent_server.schemas.runs import RunBody

CronField = Literal[
    "cron_id",
    "assistant_id",
    "thread_id",
    "user_id",
    "end_time",
    "schedule",
    "timezone",
    "payload",
    "next_run_date",
    "metadata",
    "on_run_completed",
    "enabled",
    "created_at",
    "updated_at",
    "now",
]


def _in_utc(timestamp: datetime) -> datetime:
    try:
        return (timestamp if timestamp.tzinfo else timestamp.replace(tzinfo=UTC)).astimezone(UTC)
    except OverflowError:
        raise ValueError("the timestamp is out of range") from None


class NewCron(RunBody):
    """A run to create on a schedule."""

    schedule: str = Field(max_length=schedules.MAX_LENGTH)
    timezone: str | None = None
    end_time: Annotated[datetime, AfterValidator(_in_utc)] | None = None
    enabled: bool = True
    on_run_completed: Literal["delete", "keep"] = "delete"

    @model_validator(mode="after")
    def _has_next_run(self) -> Self:
        schedules.next_fire_time(self.schedule, self.timezone, datetime.now(UTC))
        return self

    @property
    def payload(self) -> JSONObject:
        """The fields that the client sent, unchanged."""
        return self.model_dump(mode="json", exclude_unset=True)


class CronChangesBase(Body):
    """The fields of a cron to change."""

    verbatim_fields = RunBody.verbatim_fields

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, data: Any) -> Any:
        # Unlike other fields, `end_time` may be null, which removes it.
        if isinstance(data, dict):
            return {k: v for k, v in data.items() if v is not None or k == "end_time"}
        return data

    @property
    def changed_fields(self) -> JSONObject:
        """The fields to change."""
        return self.model_dump(mode="json", exclude_unset=True)


CronChanges: type[CronChangesBase] = create_model(
    "CronChanges",
    __base__=CronChangesBase,
    __doc__="Fields of a cron to change; null removes `end_time`.",
    **{
        name: (field.rebuild_annotation() | None, None)
        for name, field in NewCron.model_fields.items()
    },  # type: ignore[call-overload]
)


class CronCount(Body):
    assistant_id: UUID | None = None
    thread_id: UUID | None = None
    enabled: bool | None = None
    metadata: JSONObject = {}


class CronSearch(CronCount, Page):
    sort_by: Literal[
        "cron_id",
        "assistant_id",
        "thread_id",
        "next_run_date",
        "end_time",
        "created_at",
        "updated_at",
    ] = "created_at"
    sort_order: SortOrder = "desc"
    select: list[CronField] | None = None
