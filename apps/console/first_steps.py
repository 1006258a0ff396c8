"""The first steps in a workspace: a key, a trace, a call of an agent, a deployment."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from django.utils import timezone

from apps.api_keys import services as api_keys
from apps.core.callers import Caller
from apps.deployments.call_snippets import CallSnippets, get_call_snippets
from apps.deployments.models import Deployment
from apps.organizations.models import User
from apps.organizations.permissions import Permission
from apps.trace_store import RunQuery, RunRow, run_store
from apps.tracing.models import Project

KEY_NAME = "First steps"
KEY_DAYS = 30
PLACEHOLDER = "<your key>"
MAX_SEARCHED_PROJECTS = 100


@dataclass(frozen=True)
class FirstSteps:
    newest_trace: RunRow | None
    key: str
    """The secret of the key that was created by this request, else a placeholder."""
    agent: Deployment | None
    call: CallSnippets | None
    may_deploy: bool

    @property
    def has_key(self) -> bool:
        return self.key != PLACEHOLDER


def load_first_steps(caller: Caller, *, secret: str = "") -> FirstSteps:
    """Return the steps with the workspace's oldest served agent, often the sample agent."""
    key = secret or PLACEHOLDER
    agent = None
    if caller.may(Permission.DEPLOYMENTS_READ):
        deployments = Deployment.objects.for_workspace(caller.workspace_id)
        served = deployments.filter(active_revision__isnull=False)
        agent = served.select_related("active_revision").order_by("created_at", "pk").first()
    return FirstSteps(
        newest_trace=find_newest_trace(caller),
        key=key,
        agent=agent,
        call=None if agent is None else get_call_snippets(agent, key=key),
        may_deploy=caller.may(Permission.DEPLOYMENTS_WRITE),
    )


def find_newest_trace(caller: Caller) -> RunRow | None:
    """Return the root of the workspace's newest trace, if the caller may read traces."""
    if not caller.may(Permission.RUNS_READ):
        return None
    projects = Project.objects.for_workspace(caller.workspace_id).present().newest_first()
    project_ids = list(projects.values_list("pk", flat=True)[:MAX_SEARCHED_PROJECTS])
    query = RunQuery(project_ids=project_ids, is_root=True)
    page = run_store.query(caller.workspace_id, query, limit=1) if project_ids else None
    return page.runs[0].row if page and page.runs else None


def create_key(caller: Caller, person: User) -> str:
    """Create a personal key for the snippets and return its secret, which is not stored."""
    _, secret = api_keys.issue_personal_key(
        organization_id=caller.organization_id,
        person=person,
        name=KEY_NAME,
        scopes=["write"],
        workspace_id=caller.workspace_id,
        expires_at=timezone.now() + timedelta(days=KEY_DAYS),
    )
    return secret
