"""Issuing, finding, rotating and revoking API keys."""

from apps.api_keys.services.issuing import (
    issue_key,
    issue_personal_key,
    issue_service_key,
    revoke_key,
    revoke_personal_keys,
    rotate_key,
    update_key,
)
from apps.api_keys.services.key_lookup import (
    Holder,
    caller_of,
    callers_of,
    forget_all,
    holder_of,
    organization_caller_of,
    person_caller_of,
)
from apps.api_keys.services.key_policies import Rights
from apps.api_keys.services.secrets import PREFIX, digest

__all__ = [
    "PREFIX",
    "Holder",
    "Rights",
    "caller_of",
    "callers_of",
    "digest",
    "forget_all",
    "holder_of",
    "issue_key",
    "issue_personal_key",
    "issue_service_key",
    "organization_caller_of",
    "person_caller_of",
    "revoke_key",
    "revoke_personal_keys",
    "rotate_key",
    "update_key",
]
