"""Creation, look-up, rotation and revocation of API keys."""

from apps.api_keys.services.issue_keys import (
    KeyPolicy,
    issue_key,
    issue_personal_key,
    issue_service_key,
    revoke_key,
    revoke_personal_keys,
    rotate_key,
    update_key,
)
from apps.api_keys.services.key_lookup import (
    PREFIX,
    KeyInfo,
    cached_organization_id,
    caller_for_key,
    callers_for_keys,
    clear_cache,
    digest,
    get_key_info,
    organization_caller_for_key,
    person_caller_for_key,
)

__all__ = [
    "PREFIX",
    "KeyInfo",
    "KeyPolicy",
    "cached_organization_id",
    "caller_for_key",
    "callers_for_keys",
    "clear_cache",
    "digest",
    "get_key_info",
    "issue_key",
    "issue_personal_key",
    "issue_service_key",
    "organization_caller_for_key",
    "person_caller_for_key",
    "revoke_key",
    "revoke_personal_keys",
    "rotate_key",
    "update_key",
]
