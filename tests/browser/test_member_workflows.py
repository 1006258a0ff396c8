"""Keyboard-only workflows of members and keys, with confirmation dialogs."""

from __future__ import annotations

import pytest

from apps.api_keys.models import ApiKey
from apps.api_keys.services import issue_key
from apps.organizations.models import Membership
from tests.browser.test_accessibility import axe_violations
from tests.factories.organizations import MembershipFactory


@pytest.fixture
def owner(session):
    Membership.objects.update_or_create(
        organization=session.workspace.organization,
        user=session.user,
        defaults={"role": "owner", "custom_role": None},
    )
    return session


def test_key_is_revoked_by_keyboard_and_escape_cancels_the_dialog(owner):
    key, _ = issue_key(
        organization=owner.workspace.organization,
        workspace=owner.workspace,
        name="Gateway",
        scopes=["read"],
    )
    page = owner.goto(f"{owner.path}/settings/keys")
    opener = page.get_by_role("button", name="Revoke Gateway")
    question = page.get_by_role("dialog", name="Revoke Gateway?")

    opener.press("Enter")
    question.wait_for()
    assert axe_violations(page) == []
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


def test_role_button_appears_after_a_change_and_saves_the_role(owner):
    other = MembershipFactory(organization=owner.workspace.organization).user
    page = owner.goto(f"{owner.path}/settings/organization-members")
    row = page.get_by_role("row").filter(has_text=other.email)
    choice = row.get_by_role("combobox")

    assert row.get_by_role("button", name="Set").count() == 0
    choice.select_option(label="Organization Viewer")
    row.get_by_role("button", name="Set").press("Enter")
    page.get_by_text("is now Organization Viewer").wait_for()

    assert Membership.objects.get(user=other).role == "viewer"
