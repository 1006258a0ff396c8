"""Services of organizations; the package root exports what other apps use."""

from apps.organizations.services.organizations import (
    FIRST_WORKSPACE,
    OrganizationSetup,
    create_organization,
    get_or_create_organization,
    may_create_organization,
)
from apps.organizations.services.permission_resolution import (
    caller_for,
    callers_for,
    organization_caller_for,
)

__all__ = [
    "FIRST_WORKSPACE",
    "OrganizationSetup",
    "caller_for",
    "callers_for",
    "create_organization",
    "get_or_create_organization",
    "may_create_organization",
    "organization_caller_for",
]
