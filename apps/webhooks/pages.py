"""What the pages of endpoints and of their deliveries share: a form field and the rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django import forms

from apps.webhooks.models import Delivery, WebhookEndpoint

PAGE_SIZE = 50


class HeadersField(forms.CharField):
    """Lines of `Name: value`, which become a dictionary."""

    def __init__(self, *, rows: int = 3, help_text: str = "") -> None:
        super().__init__(
            required=False,
            max_length=20_000,
            label="Headers",
            widget=forms.Textarea(attrs={"rows": rows}),
            help_text=help_text
            or "One `Name: value` in each line. Values are stored encrypted and not shown.",
        )

    def clean(self, value: Any) -> dict[str, str]:
        headers = {}
        for line in super().clean(value).splitlines():
            name, separator, text = line.partition(":")
            if not line.strip():
                continue
            if not separator:
                raise forms.ValidationError("Write each header as `Name: value`.")
            headers[name.strip()] = text.strip()
        return headers


@dataclass(frozen=True, slots=True)
class EndpointRow:
    """An endpoint in a list; `scope` and `events` are texts."""

    endpoint: WebhookEndpoint
    scope: str
    events: str
    url: str
    delete_url: str


@dataclass(frozen=True, slots=True)
class DeliveryRow:
    """A delivery in a log."""

    delivery: Delivery
    event: str
    replay_url: str
    detail: str = ""
    """The subject or the channel, with the address of its page if it has one."""
    detail_url: str = ""
