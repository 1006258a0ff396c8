"""People and keys by the keyboard alone: what is taken away is asked for once more, by name."""

from __future__ import annotations

import pytest

from apps.api_keys.models import ApiKey
from apps.api_keys.services import issue_key
from apps.organizations.models import Membership
from tests.browser.test_accessible import violations
from tests.factories.organizations import MembershipFactory


@pytest.fixture
def owner(visit):
    Membership.objects.update_or_create(
        organization=visit.workspace.organization,
        user=visit.user,
        defaults={"role": "owner", "custom_role": None},
    )
    return visit


def test_a_key_is_revoked_by_keyboard_after_a_question_that_escape_takes_back(owner):
    key, _ = issue_key(
        organization=owner.workspace.organization,
        workspace=owner.workspace,
        name="Gateway",
        scopes=["read"],
    )
    page = owner.goto(f"{owner.base}/settings/keys")
    opener = page.get_by_role("button", name="Revoke Gateway")
    question = page.get_by_role("dialog", name="Revoke Gateway?")

    opener.press("Enter")
    question.wait_for()
    assert violations(page) == []
    page.keyboard.press("Escape")
    question.wait_for(state="hidden")
    assert opener.evaluate("element => element === document.activeElement")
    assert ApiKey.objects.unrevoked().filter(pk=key.pk).exists()

    opener.press("Enter")
    assert question.get_by_role("button", name="Cancel").evaluate(
        "element => element === document.activeElement"
    )
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.get_by_text("Gateway was revoked").wait_for()
    assert not ApiKey.objects.unrevoked().filter(pk=key.pk).exists()


def test_a_role_is_set_where_its_button_shows_only_once_it_differs(owner):
    other = MembershipFactory(organization=owner.workspace.organization).user
    page = owner.goto(f"{owner.base}/settings/people")
    row = page.get_by_role("row").filter(has_text=other.email)
    choice = row.get_by_role("combobox")

    assert row.get_by_role("button", name="Set").count() == 0
    choice.select_option(label="Organization Viewer")
    row.get_by_role("button", name="Set").press("Enter")
    page.get_by_text("is now Organization Viewer").wait_for()

    assert Membership.objects.get(user=other).role == "viewer"
