"""Every page passes axe and fits the viewport in both themes and widths."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from django.conf import settings

from apps.deployments.models import RevisionGraph
from apps.exports.models import BulkExport, Destination
from apps.exports.services import create_export
from apps.monitoring.services import dashboards
from apps.tracing.models import Project
from apps.tracing.services import sharing
from tests.browser.conftest import SETTLED
from tests.browser.test_workflows import ingest_nested_trace
from tests.factories.deployments import DeploymentFactory, LogLineFactory, RevisionFactory
from tests.factories.tracing import read_run

AXE = settings.BASE_DIR / "node_modules/axe-core/axe.min.js"
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
CLIPPED_HEADS = """() => [...document.querySelectorAll("thead th")].filter((head) => {
  const text = document.createRange();
  text.selectNodeContents(head);
  const box = head.getBoundingClientRect();
  return head.offsetParent && !head.querySelector(".visually-hidden")
    && text.getBoundingClientRect().right > box.right + 1;
}).map((head) => head.innerText)"""
"""The heads of columns whose text is wider than the column."""
Variant = tuple[int, str]
"""Width in pixels and theme."""
ALL_VARIANTS: list[Variant] = [(1440, "light"), (390, "dark"), (1440, "dark"), (390, "light")]
# Each page once, then in every variant.
VARIANTS = pytest.mark.parametrize(
    "variants",
    [
        pytest.param(ALL_VARIANTS[:2], id="alternating"),
        *(
            pytest.param([variant], id=f"{variant[0]}-{variant[1]}", marks=pytest.mark.slow)
            for variant in ALL_VARIANTS
        ),
    ],
)


def page_paths(session):
    """Yield the path of every page, with and without rows."""
    base = session.path
    yield from (f"{base}/projects", f"{base}/deployments", f"{base}/projects/p/nowhere")
    yield f"{base}/start"
    root, child, _ = ingest_nested_trace(session.workspace)
    project = f"{base}/projects/p/{read_run(session.workspace, root['id']).row.project_id}"
    agent = DeploymentFactory(workspace=session.workspace, name="support")
    agent.active_revision = RevisionFactory(deployment=agent, status="DEPLOYED")
    agent.save()
    RevisionGraph.unscoped.create(
        workspace=session.workspace,
        revision=agent.active_revision,
        graph_id="agent",
        schemas={},
        drawing={},
    )
    failed = RevisionFactory(
        deployment=agent,
        status="BUILD_FAILED",
        failure="The package x cannot be installed.",
        commit_sha="ab" * 20,
    )
    LogLineFactory(revision=failed, level="ERROR")
    LogLineFactory(revision=failed, level="WARNING")
    RevisionFactory(deployment__workspace=session.workspace, status="BUILDING")
    deployment = f"{base}/deployments/{failed.deployment_id}"
    yield from (f"{base}/projects", project, f"{project}?show=llm&menu=columns")
    yield from (f"{project}?filter=has(tags,'none')&q=x", f"{project}/settings")
    yield from (f"{project}/r/{root['id']}", f"{project}/r/{child['id']}?view=waterfall")
    yield f"{project}/compare?a={root['id']}&b={child['id']}"
    yield f"{project}?show=all&root=name:x&any=nme:1&tree=like(name,'x')"
    yield from (f"{project}/monitoring?compare=1", f"{project}/threads")
    yield from dashboard_and_export_paths(session, project)
    for view in ("", "turns", "details"):
        yield f"{project}/thread?thread=t-1&view={view}"
    share = sharing.share_trace(session.workspace.pk, UUID(root["id"]))
    yield f"/public/{share.token}/r"
    for name in ("ingest-log", "prices", "feedback", "retention"):
        yield f"{base}/settings/{name}"
    yield from (f"{base}/deployments", f"{base}/deployments/new", deployment)
    yield from (f"{deployment}/logs", f"{deployment}/environment", f"{deployment}/settings")
    yield f"{deployment}/revisions/{failed.pk}"


def dashboard_and_export_paths(session, project):
    base, workspace = session.path, session.workspace
    yield f"{base}/dashboards"
    row = Project.objects.for_workspace(workspace).get(pk=project.rpartition("/")[2])
    copy = dashboards.clone_project_dashboard(project=row)
    chart = copy.charts.in_order()[0]
    yield from (f"{base}/dashboards", f"{base}/dashboards/{copy.pk}")
    yield from (
        f"{base}/dashboards/{copy.pk}/charts/new",
        f"{base}/dashboards/{copy.pk}/charts/{chart.pk}",
    )
    session.user.workspace_memberships.update(role="admin")
    yield from (f"{base}/exports", f"{base}/exports/destinations/new")
    destination = Destination(workspace_id=workspace.pk, name="Downloads", kind="platform")
    destination.save(force_insert=True)
    yield f"{base}/exports/destinations/{destination.pk}"
    day = datetime(2026, 3, 1, tzinfo=UTC)
    export = create_export(
        export=BulkExport(
            workspace_id=workspace.pk,
            project=row,
            destination=destination,
            start_time=day,
            end_time=day + timedelta(days=2),
        )
    )
    yield from (f"{base}/exports", f"{base}/exports/new", f"{base}/exports/{export.pk}")


def axe_violations(page, within="html"):
    """Return the violations in the element of the selector, which must exist.

    Tests of one state check the element that changed, which takes less CPU than the whole page.
    """
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE.read_text())
    result = page.evaluate(
        """([within, rules]) => axe.run(
            within === "html" ? document : within, {runOnly: rules, resultTypes: ["violations"]}
        )""",
        [within, RULES],
    )
    return [
        f"{v['id']}: {node['target']} {node['failureSummary']}"
        for v in result["violations"]
        for node in v["nodes"]
    ]


def find_problems(page, addresses, variants):
    """Open the addresses, each in the next of the variants, and return their violations."""
    problems = {}
    for address, (width, theme) in zip(addresses, itertools.cycle(variants), strict=False):
        page.set_viewport_size({"width": width, "height": 844})
        page.emulate_media(color_scheme=theme, reduced_motion="reduce")
        page.goto(address)
        page.locator(SETTLED).wait_for(state="attached")
        violations = axe_violations(page)
        if page.evaluate("document.documentElement.scrollWidth > innerWidth"):
            violations.append("page is wider than the viewport")
        violations += [f"clipped head: {text}" for text in page.evaluate(CLIPPED_HEADS)]
        if violations:
            problems[f"{address} {width} {theme}"] = violations
    return problems


@VARIANTS
def test_every_page_passes_axe_and_fits_the_viewport(session, variants):
    problems = find_problems(session.page, page_paths(session), variants)
    # The browser console reports the 404 of the missing page.
    failed_requests = [text for text in session.console_errors if "404" in text]
    session.console_errors[:] = [
        text for text in session.console_errors if text not in failed_requests
    ]

    assert problems == {}
    assert len(failed_requests) == 1


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_dialogs_pass_axe(session, theme):
    page = session.page
    page.emulate_media(color_scheme=theme, reduced_motion="reduce")
    session.goto(f"{session.path}/projects")
    page.keyboard.press("?")
    page.get_by_role("dialog", name="Keyboard shortcuts").wait_for()
    keys = axe_violations(page)
    page.keyboard.press("Escape")
    page.keyboard.press("Control+k")
    page.get_by_role("option").first.wait_for()
    palette = axe_violations(page)

    assert keys + palette == []
