"""The first run in a workspace: what a page and a coding agent need to send, call and deploy."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from uuid import UUID

from django.conf import settings
from django.utils import timezone

from apps.api_keys import services as api_keys
from apps.api_keys.models import ApiKey
from apps.console.sample_data import find_sample_project
from apps.core.callers import Caller
from apps.deployments import sample
from apps.deployments.call_snippets import CallSnippets, get_call_snippets
from apps.deployments.models import Deployment
from apps.deployments.services import create_deployment
from apps.ingest.services import ingest_log
from apps.organizations.models import User, Workspace
from apps.organizations.permissions import Permission
from apps.trace_store import RunQuery, RunRow, run_store
from apps.tracing.models import Project

KEY_DAYS = 7
PLACEHOLDER = "<your key>"
PROJECT_PLACEHOLDER = "<your project>"
DEFAULT_PROJECT = "my-project"
MAX_SEARCHED_PROJECTS = 100
REJECTIONS_WINDOW = timedelta(hours=1)
_UNSAFE_IN_NAME = re.compile(r"[^\w .-]+")


class KeyPurpose(StrEnum):
    """What a key of this page is for, which decides its scopes."""

    TRACE = "trace"
    CALL = "call"


_SCOPES = {KeyPurpose.TRACE: ["ingest", "read"], KeyPurpose.CALL: ["write"]}
_KEY_NAMES = {KeyPurpose.TRACE: "First run", KeyPurpose.CALL: "First agent call"}


@dataclass(frozen=True)
class Snippet:
    """Text to copy; the key and the project stand in it as placeholders."""

    key: str
    title: str
    text: str
    caption: str


@dataclass(frozen=True)
class FirstRun:
    snippets: list[Snippet]
    mcp: str
    """The command that gives a coding agent the platform's MCP tools."""
    agent: Deployment | None
    call: CallSnippets | None
    building: Deployment | None
    """The sample agent that is not served yet, if no agent is."""
    may_deploy: bool


def clean_project_name(text: str) -> str:
    """Return the name without characters that a shell or an environment file would interpret."""
    return _UNSAFE_IN_NAME.sub("", text).strip()[:100] or DEFAULT_PROJECT


def load_first_run(caller: Caller) -> FirstRun:
    """Return the snippets, with the workspace's oldest served agent, often the sample agent."""
    agent = None
    if caller.may(Permission.DEPLOYMENTS_READ):
        deployments = Deployment.objects.for_workspace(caller.workspace_id)
        served = deployments.filter(active_revision__isnull=False)
        agent = served.select_related("active_revision").order_by("created_at", "pk").first()
    building = None
    if agent is None and caller.may(Permission.DEPLOYMENTS_READ):
        building = find_sample_agent(caller.workspace_id)
    return FirstRun(
        snippets=trace_snippets(caller),
        mcp=_MCP.format(base=settings.BASE_URL, key=PLACEHOLDER),
        agent=agent,
        call=None if agent is None else get_call_snippets(agent, key=PLACEHOLDER),
        building=building,
        may_deploy=caller.may(Permission.DEPLOYMENTS_WRITE),
    )


def find_sample_agent(workspace_id: UUID) -> Deployment | None:
    deployments = Deployment.objects.for_workspace(workspace_id).present()
    return deployments.filter(name=sample.NAME).first()


def deploy_sample_agent(workspace_id: UUID, user: User) -> Deployment:
    """Deploy the sample agent. Raises `NameTaken` and `QuotaReached`."""
    address, _ = sample.ensure_repository()
    return create_deployment(
        workspace=Workspace.objects.select_related("organization").get(pk=workspace_id),
        name=sample.NAME,
        repo_url=address,
        branch="main",
        created_by=user,
    )


def find_newest_trace(caller: Caller, since: datetime | None = None) -> RunRow | None:
    """Return the root of the workspace's newest trace, if the caller may read traces.

    The sample data is none of its traces.

    With `since`, only of a trace that started later.
    """
    if not caller.may(Permission.RUNS_READ):
        return None
    projects = Project.objects.for_workspace(caller.workspace_id).present().newest_first()
    if (sample := find_sample_project(caller.workspace_id)) is not None:
        projects = projects.exclude(pk=sample.pk)
    project_ids = list(projects.values_list("pk", flat=True)[:MAX_SEARCHED_PROJECTS])
    query = RunQuery(project_ids=project_ids, is_root=True, started_from=since)
    page = run_store.query(caller.workspace_id, query, limit=1) if project_ids else None
    return page.runs[0].row if page and page.runs else None


@dataclass(frozen=True)
class Rejections:
    """Runs that the workspace's senders sent in the last hours and that were not stored."""

    count: int
    reasons: list[str]


def load_rejections(caller: Caller) -> Rejections:
    now = timezone.now()
    hours = ingest_log.list_hours(
        caller.workspace_id, begin=now - REJECTIONS_WINDOW, end=now, limit=MAX_SEARCHED_PROJECTS
    )
    reasons = {reason.replace("_", " "): None for row in hours for reason in row.reasons}
    return Rejections(sum(row.refused for row in hours), [*reasons])


def create_key(caller: Caller, person: User, purpose: KeyPurpose) -> str:
    """Create a personal key for the snippets and return its secret, which is not stored.

    A key that the user already has for this is rotated instead, and its old secret stays valid, so
    that a program that was set up before keeps sending and no second key is listed.
    """
    name = f"{_KEY_NAMES[purpose]}, {person.email}"[:200]
    own_keys = ApiKey.objects.filter(organization_id=caller.organization_id).live()
    existing = own_keys.of_person(person.pk).filter(name=name, workspace_id=caller.workspace_id)
    key = existing.newest_first().first()
    if key is not None and set(key.scopes) == set(_SCOPES[purpose]):
        _, secret = api_keys.rotate_key(key=key, overlap=timedelta(days=KEY_DAYS))
        return secret
    _, secret = api_keys.issue_personal_key(
        organization_id=caller.organization_id,
        person=person,
        name=name,
        scopes=_SCOPES[purpose],
        workspace_id=caller.workspace_id,
        expires_at=timezone.now() + timedelta(days=KEY_DAYS),
    )
    return secret


def trace_snippets(caller: Caller) -> list[Snippet]:
    """Return the ways to send a first trace, that for a coding agent first."""
    base = settings.BASE_URL
    page = f"{base}/o/{caller.workspace_id}/projects"
    values = {"base": base, "key": PLACEHOLDER, "project": PROJECT_PLACEHOLDER, "page": page}
    both = json.dumps(
        [
            {"api_url": "https://api.smith.langchain.com", "api_key": "<your LangSmith key>"},
            {"api_url": f"{base}/api/v1", "api_key": PLACEHOLDER},
        ]
    )
    return [
        Snippet("agent", "Coding agent", _PROMPT.format(**values), "Prompt for your coding agent"),
        Snippet("python", "Python", _PYTHON.format(**values), "Shell and Python"),
        Snippet("javascript", "JavaScript", _JAVASCRIPT.format(**values), "Shell and JavaScript"),
        Snippet("otel", "OpenTelemetry", _OTEL.format(**values), "Environment of the exporter"),
        Snippet(
            "both",
            "Already on LangSmith",
            _BOTH.format(endpoints=both, project=PROJECT_PLACEHOLDER),
            "Send to both: environment of the program",
        ),
    ]


# Each step is one line, which the page and the coding agent wrap as they need.
_PROMPT = """\
Add tracing to this repository. The tracing server speaks the LangSmith protocol. \
Read {base}/llms.txt first.

1. Put LANGSMITH_TRACING=true, LANGSMITH_ENDPOINT={base}/api/v1, LANGSMITH_API_KEY={key} and \
LANGSMITH_PROJECT={project} into the local environment file that this repository already uses; \
make sure that Git ignores it; do not print the key.
2. LangChain and LangGraph need no code. For OpenAI or Anthropic clients use wrap_openai or \
wrap_anthropic; decorate the entry point with @traceable; set metadata thread_id to the \
conversation's id and ls_agent_type to root on the agent's outermost run. JavaScript: the same \
names in the `langsmith` package. Existing OpenTelemetry: set the exporter's address to \
{base}/otel and the header x-api-key.
3. Run the program or its tests once.
4. Check: curl -s -G -H "x-api-key: {key}" --data-urlencode "name={project}" \
-d include_stats=true {base}/api/v1/sessions must show run_count above 0. If it does not, read \
{base}/docs/troubleshooting.md, correct, repeat.
5. Finish with one line: the link {page}?q={project} and what you changed."""

_MCP = 'claude mcp add --transport http slipway {base}/mcp --header "x-api-key: {key}"'

_PYTHON = """\
pip install langsmith
export LANGSMITH_TRACING=true
export LANGSMITH_ENDPOINT={base}/api/v1
export LANGSMITH_API_KEY={key}
export LANGSMITH_PROJECT="{project}"

python - <<'EOF'
from langsmith import traceable

@traceable
def greet(name: str) -> str:
    return f"Hello, {{name}}"

greet("Slipway")
EOF"""

_JAVASCRIPT = """\
npm install langsmith
export LANGSMITH_TRACING=true
export LANGSMITH_ENDPOINT={base}/api/v1
export LANGSMITH_API_KEY={key}
export LANGSMITH_PROJECT="{project}"

node --input-type=module - <<'EOF'
import {{ traceable }} from "langsmith/traceable";

const greet = traceable(async (name) => `Hello, ${{name}}`, {{ name: "greet" }});
console.log(await greet("Slipway"));
EOF"""

_OTEL = """\
export OTEL_EXPORTER_OTLP_ENDPOINT={base}/otel
export OTEL_EXPORTER_OTLP_HEADERS="x-api-key={key},Langsmith-Project={project}\""""

_BOTH = """\
unset LANGSMITH_ENDPOINT
export LANGSMITH_RUNS_ENDPOINTS='{endpoints}'
export LANGSMITH_TRACING=true
export LANGSMITH_PROJECT="{project}\""""
