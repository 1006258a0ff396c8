"""Billing accounts and payments of all regions, in the US database.

Organizations are in other databases, so accounts refer to them by id, without foreign key.
"""

from __future__ import annotations

from typing import Any

from django.core.validators import MinValueValidator
from django.db import models
from django.db.models import Q

from apps.core.ids import uuid7
from apps.core.regions import REGIONS


class BillingAccount(models.Model):
    """An organization's invoice details."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    organization_id = models.UUIDField(unique=True, editable=False)
    region = models.CharField(
        max_length=2, editable=False, choices=[(name, r.title) for name, r in REGIONS.items()]
    )
    """The region of the organization's data."""
    name = models.CharField("company or person", max_length=200, blank=True)
    email = models.EmailField("address for invoices", blank=True)
    address = models.TextField("postal address", max_length=500, blank=True)
    country = models.CharField("country", max_length=2, blank=True, help_text="Two letters.")
    tax_id = models.CharField("tax number", max_length=40, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ("-created_at",)

    def __str__(self) -> str:
        return self.name or f"organization {self.organization_id}"


class Payment(models.Model):
    """A payment or refund of an account."""

    class Status(models.TextChoices):
        OPEN = "open", "Open"
        PAID = "paid", "Paid"
        FAILED = "failed", "Failed"
        REFUNDED = "refunded", "Refunded"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    account = models.ForeignKey(BillingAccount, models.PROTECT, related_name="payments")
    invoice = models.CharField(max_length=40, unique=True)
    """The invoice number shown to customers."""
    description = models.CharField(max_length=200, blank=True)
    amount = models.DecimalField(max_digits=12, decimal_places=2, validators=[MinValueValidator(0)])
    currency = models.CharField(max_length=3, default="USD")
    method = models.CharField(max_length=60, blank=True, help_text="Never a card's whole number.")
    status = models.CharField(max_length=10, choices=Status.choices, default=Status.OPEN)
    due_at = models.DateField(null=True, blank=True)
    paid_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ("-created_at",)
        indexes = [models.Index(fields=["account", "-created_at"], name="payment_of_account")]
        constraints = [
            models.CheckConstraint(condition=Q(amount__gte=0), name="payment_not_negative")
        ]

    def __str__(self) -> str:
        return f"{self.invoice}: {self.amount} {self.currency}"

    def clean_fields(self, exclude: Any = None) -> None:
        self.currency = self.currency.upper()
        super().clean_fields(exclude=exclude)
