from typing import Any

from apps.core import errors


class WorkspaceRequired(errors.Forbidden):
    """SDK clients recognize this `error` and explain how to name the workspace."""

    code = "org_scoped_key_requires_workspace"
    detail = "The API key has access to several workspaces. Name one in X-Tenant-Id."

    def as_json(self) -> dict[str, Any]:
        return super().as_json() | {"error": self.code}


class PersonalKeysDisabled(errors.Forbidden):
    code = "personal_keys_disabled"
    detail = "Personal keys are disabled in this organization."


class KeyLifetimeTooLong(errors.Invalid):
    code = "key_lives_too_long"
    detail = "`expires_at` exceeds the organization's maximum key lifetime."
