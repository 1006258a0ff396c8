"""Settings pages of prompt webhooks: list, create, deliveries, secret and delete."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from apps.audit.models import Entry
from apps.core.secrets import decrypt
from apps.prompts.models import PromptWebhook
from apps.webhooks.models import Delivery
from tests.console.conftest import create_workspace_user, signed_in
from tests.factories.organizations import WorkspaceFactory
from tests.factories.prompts import (
    create_commit,
    create_delivery_row,
    create_prompt,
    create_webhook_row,
)

pytestmark = pytest.mark.django_db
ADDRESS = "https://203.0.113.7/hook"


@pytest.fixture(autouse=True)
def allow_addresses(settings):
    settings.ALLOW_PRIVATE_ADDRESSES = True  # documentation addresses are reserved


@pytest.fixture
def url(workspace):
    return f"/o/{workspace.pk}/settings/prompt-webhooks"


def test_empty_list_has_a_form(page, url):
    content = page.get(url).content.decode()

    assert "No webhooks yet" in content
    assert "Create webhook" in content
    assert f'href="{url}"' in content  # the settings navigation


def test_webhook_is_created_and_its_secret_shown_once(page, workspace, prompt, url):
    body = {
        "url": ADDRESS,
        "triggers": ["commit", "tag:update"],
        "prompts": "helper, helper",
        "headers": "Authorization: Bearer one\n\nX-Team: a:b\n",
    }

    created = page.post(url, body).content.decode()

    row = PromptWebhook.objects.for_workspace(workspace).get()
    secret = decrypt(row.secret)
    assert secret in created
    assert (row.url, row.triggers, row.include_prompts) == (
        ADDRESS,
        ["commit", "tag:update"],
        [prompt.pk],
    )
    assert row.headers == {"Authorization": "Bearer one", "X-Team": "a:b"}
    listed = page.get(url).content.decode()
    assert ADDRESS in listed
    assert "commits, moved tags" in listed
    assert secret not in listed
    assert "Bearer one" not in listed
    assert Entry.objects.filter(action="prompt_webhook.created").count() == 1


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"url": ""}, "This field is required"),
        ({"triggers": []}, "This field is required"),
        ({"prompts": "unknown"}, "There is no prompt unknown"),
        ({"headers": "no colon"}, "Write each header as"),
        ({"headers": "Host: a"}, "is set by this server"),
        ({"url": "ftp://203.0.113.7"}, "Webhook host blocked"),
    ],
)
def test_invalid_webhook_is_refused(page, workspace, url, fields, message):
    response = page.post(url, {"url": ADDRESS, "triggers": ["commit"], **fields})

    assert response.status_code == 422
    assert message in response.content.decode().replace("&#x27;", "'")
    assert not PromptWebhook.objects.for_workspace(workspace).exists()


def test_prompt_of_another_workspace_is_unknown(page, url):
    create_prompt(WorkspaceFactory(), "foreign")

    response = page.post(url, {"url": ADDRESS, "triggers": ["commit"], "prompts": "foreign"})

    assert response.status_code == 422


def test_deliveries_are_listed_with_their_commit_and_error(page, workspace, prompt, url):
    commit, webhook = create_commit(prompt), create_webhook_row(workspace)
    empty = page.get(f"{url}/{webhook.pk}").content.decode()
    create_delivery_row(webhook, commit, status="given_up", last_error="Refused.", attempts=9)
    create_delivery_row(webhook, commit, status="delivered", response_status=204, attempts=1)

    content = page.get(f"{url}/{webhook.pk}").content.decode()

    assert "No deliveries yet" in empty
    assert content.index("Delivered") < content.index("Given up")
    assert "Refused." in content
    assert f"helper:{commit.commit_hash[:8]}" in content


def test_deliveries_are_paged_in_a_fixed_number_of_queries(page, workspace, prompt, url):
    commit, webhook = create_commit(prompt), create_webhook_row(workspace)
    counts = []
    for number in (1, 60):
        for _ in range(number):
            create_delivery_row(webhook, commit)
        with CaptureQueriesContext(connection) as queries:
            response = page.get(f"{url}/{webhook.pk}")
        counts.append(len(queries))

    assert counts[0] == counts[1]
    assert "?from=50" in response.content.decode()
    assert page.get(f"{url}/{webhook.pk}?from=50").content.decode().count("Waiting") == 11


def test_secret_is_replaced_and_shown(page, workspace, url):
    webhook = create_webhook_row(workspace)

    content = page.post(f"{url}/{webhook.pk}/secret").content.decode()

    webhook.refresh_from_db()
    assert decrypt(webhook.secret) != "whsec_AAAA"
    assert decrypt(webhook.secret) in content


def test_webhook_is_deleted(page, workspace, url):
    webhook = create_webhook_row(workspace)

    response = page.post(f"{url}/{webhook.pk}/delete", follow=True)

    assert "The webhook was deleted." in response.content.decode()
    assert not PromptWebhook.objects.for_workspace(workspace).exists()


def test_reader_sees_webhooks_and_changes_none(workspace, url):
    reader = signed_in(create_workspace_user(workspace, "viewer"))
    webhook = create_webhook_row(workspace, headers={"Authorization": "secret"})

    content = reader.get(url).content.decode()

    assert webhook.url in content
    assert "Create webhook" not in content
    body = {"url": ADDRESS, "triggers": ["commit"]}
    assert reader.post(url, body).status_code == 403
    for action in ("secret", "delete"):
        assert reader.post(f"{url}/{webhook.pk}/{action}").status_code == 403
    assert "Replace secret" not in reader.get(f"{url}/{webhook.pk}").content.decode()


def test_finished_delivery_is_sent_again(page, workspace, prompt, url):
    commit, webhook = create_commit(prompt), create_webhook_row(workspace)
    delivery = create_delivery_row(webhook, commit, status="given_up")
    assert "Send again" in page.get(f"{url}/{webhook.pk}").content.decode()
    replay = f"{url}/{webhook.pk}/deliveries/{delivery.pk}/replay"

    assert "sent again" in page.post(replay, follow=True).content.decode()

    copy = Delivery.objects.for_workspace(workspace).get(is_replay=True)
    again = f"{url}/{webhook.pk}/deliveries/{copy.pk}/replay"
    assert "still being sent" in page.post(again, follow=True).content.decode()
    reader = signed_in(create_workspace_user(workspace, "viewer"))
    assert reader.post(replay).status_code == 403
    assert Delivery.objects.for_workspace(workspace).count() == 2
