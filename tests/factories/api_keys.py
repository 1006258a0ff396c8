from __future__ import annotations

from apps.api_keys.models import ApiKey
from apps.api_keys.services import issue_key
from apps.organizations.models import Workspace


def key_for(workspace: Workspace, *scopes: str) -> str:
    """The secret of a new key bound to the workspace; scope `admin` by default."""
    _, secret = issue_key(
        organization=workspace.organization,
        workspace=workspace,
        name="test",
        scopes=list(scopes or ["admin"]),
    )
    return secret


def api_key_row(secret: str) -> ApiKey:
    return ApiKey.objects.get(prefix=secret[:11])
