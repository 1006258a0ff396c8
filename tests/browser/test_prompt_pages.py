"""Prompt pages in Chromium: axe, both widths and themes, and the way from an edit to a tag."""

from __future__ import annotations

from apps.prompts.models import Repository
from apps.prompts.services import commit_tags, commits, repositories
from tests.browser.test_accessibility import VARIANTS, find_problems
from tests.factories.prompts import (
    create_commit,
    create_delivery_row,
    create_prompt,
    create_webhook_row,
    model_manifest,
)


def prompt_paths(session):
    """Yield the path of every prompt page, with and without rows."""
    base, workspace = f"{session.path}/prompts", session.workspace
    yield from (base, f"{base}?type=skill", f"{base}/new")
    prompt = create_prompt(
        workspace, "support-reply", description="Replies to customers", tags=["support", "mail"]
    )
    yield from (f"{base}/p/support-reply", f"{base}/p/support-reply/commits")
    yield f"{base}/p/support-reply/edit"
    first = create_commit(prompt, "Answer {question} in one sentence.")
    commits.create_prompt_commit(
        repository=prompt,
        content=model_manifest("Answer {question}\n\nBe brief and name your sources."),
        description="Name sources",
    )
    commit_tags.set_tag(repository=prompt, name="production", commit_id=first.pk)
    repositories.update_repository(repository=prompt, changes={"readme": "# Use\n\nFor *mail*."})
    page = f"{base}/p/support-reply"
    yield from (base, page, f"{page}?commit=production", f"{page}/edit", f"{page}/commits")
    yield from (f"{page}/commits/latest/diff", f"{page}/runs", f"{page}/settings")
    yield f"{page}/tags/production"
    webhooks = f"{session.path}/settings/prompt-webhooks"
    yield webhooks
    webhook = create_webhook_row(workspace, url="https://ci.example/builds/of/all/prompts")
    yield f"{webhooks}/{webhook.pk}"
    create_delivery_row(webhook, first, status="given_up", last_error="The host refused.")
    create_delivery_row(webhook, first, status="delivered", response_status=204)
    yield from (webhooks, f"{webhooks}/{webhook.pk}")


@VARIANTS
def test_every_prompt_page_passes_axe_and_fits_the_viewport(session, variants):
    assert find_problems(session.page, prompt_paths(session), variants) == {}


def test_prompt_is_written_changed_compared_and_tagged(session):
    page = session.goto(f"{session.path}/prompts")
    page.get_by_role("link", name="New prompt").click()
    page.get_by_label("Name").fill("greeter")
    page.get_by_role("button", name="Create prompt").click()
    page.get_by_label("Text").fill("Hello {name}")
    page.get_by_role("button", name="Add message").click()
    page.get_by_label("Text").nth(1).fill("How are you?")
    page.get_by_label("What changed").fill("first")
    page.get_by_role("button", name="Commit").click()
    page.get_by_role("button", name="Tag this commit").wait_for()
    page.get_by_role("link", name="Edit").click()
    page.get_by_label("Text").first.fill("Good morning {name}")
    page.get_by_role("button", name="Commit").click()
    page.get_by_label("New tag of this commit").fill("production")
    page.get_by_role("button", name="Tag this commit").click()
    page.get_by_role("link", name="What changed").click()
    page.get_by_role("heading", name="Messages").wait_for()

    repository = Repository.objects.for_workspace(session.workspace).get()
    assert repository.num_commits == 2
    assert repository.commit_tags.get().commit_id == repository.head_id
    assert "Good morning {name}" in page.locator("[data-kind=added]").first.inner_text()
