from typing import Any

from apps.core import errors


class WorkspaceRequired(errors.Forbidden):
    """Two clients turn exactly this `error` into advice on how to name the workspace."""

    code = "org_scoped_key_requires_workspace"
    detail = "This key is for several workspaces: name one in X-Tenant-Id."

    def as_json(self) -> dict[str, Any]:
        return super().as_json() | {"error": self.code}


class PersonalKeysDisabled(errors.Forbidden):
    code = "personal_keys_disabled"
    detail = "The organization allows no personal keys."


class KeyLifetimeTooLong(errors.Invalid):
    code = "key_lives_too_long"
    detail = "The organization's keys may not live that long."
