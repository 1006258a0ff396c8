from __future__ import annotations

from apps.core import errors


class BillingUnavailable(errors.Unavailable):
    code = "billing_unavailable"
    detail = "The billing database is unreachable from this region. Retry later."
