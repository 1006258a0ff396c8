"""Settings of people, places and keys, with rows: what axe knows, and that nothing overflows."""

import pytest

from apps.api_keys.services import issue_key, issue_personal_key
from apps.organizations.models import Membership
from apps.organizations.permissions import Level
from apps.organizations.roles import system_role
from apps.organizations.services import invitations
from tests.browser.test_accessible import VARIANTS, violations
from tests.factories.organizations import people_of

PAGES = [
    "general", "members", "keys", "keys/own", "keys/all", "secrets", "tags", "organization",
    "people", "roles", "roles?level=organization", "workspaces", "usage", "limits", "addresses",
    "billing", "audit",
]  # fmt: skip
OWN = [
    "/organizations", "/account", "/account/emails", "/account/password",
    "/account/second-factor", "/account/sessions",
]  # fmt: skip


@pytest.fixture
def furnished(visit):
    """The visitor owns an organization with a row of every kind, some with long names."""
    organization = visit.workspace.organization
    Membership.objects.update_or_create(
        organization=organization, user=visit.user, defaults={"role": "owner", "custom_role": None}
    )
    people_of(visit.workspace, "a-person-with-quite-a-long-name-to-show")
    issue_key(organization=organization, name="For everything", scopes=["admin"])
    issue_personal_key(organization_id=organization.pk, person=visit.user, name="Laptop")
    invitations.invite(
        organization_id=organization.pk, role=system_role(Level.ORGANIZATION, "member")
    )
    return visit


@VARIANTS
def test_the_settings_are_accessible_and_fit(furnished, theme, width):
    page = furnished.page
    page.set_viewport_size({"width": width, "height": 844})
    page.emulate_media(color_scheme=theme, reduced_motion="reduce")
    problems = {}
    addresses = [*(f"{furnished.base}/settings/{name}" for name in PAGES), *OWN]
    for address in addresses:
        page.goto(address, wait_until="networkidle")
        found = violations(page)
        if page.evaluate("document.documentElement.scrollWidth > innerWidth"):
            found.append("it is wider than the window")
        if found:
            problems[address] = found

    assert problems == {}


def test_all_settings_are_behind_one_button_where_it_is_narrow(furnished):
    page = furnished.page
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(f"{furnished.base}/settings/general")

    page.get_by_text("All settings").click()
    page.get_by_role("navigation", name="All settings").get_by_role(
        "link", name="Organization members"
    ).click()

    page.get_by_role("heading", name="Organization members").wait_for()
    assert violations(page) == []
