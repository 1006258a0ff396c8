from __future__ import annotations

from apps.core import errors


class BillingUnavailable(errors.Unavailable):
    code = "billing_unavailable"
    detail = "Billing cannot be reached from this region at the moment; try again soon."
