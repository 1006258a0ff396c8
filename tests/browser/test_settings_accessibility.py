"""Settings pages with rows pass axe and fit the viewport."""

import pytest

from apps.api_keys.services import issue_key, issue_personal_key
from apps.organizations.models import Membership
from apps.organizations.permissions import Level
from apps.organizations.roles import system_role
from apps.organizations.services import invitations
from tests.browser.test_accessibility import VARIANTS, axe_violations, find_problems
from tests.factories.organizations import create_marked_rows

PAGES = [
    "general", "members", "keys", "keys/personal", "keys/organization", "secrets", "tags",
    "organization", "organization-members", "roles", "roles?level=organization", "workspaces",
    "usage", "limits", "addresses", "billing", "audit",
]  # fmt: skip
ACCOUNT_PATHS = [
    "/organizations", "/account", "/account/emails", "/account/password",
    "/account/second-factor", "/account/sessions",
]  # fmt: skip


@pytest.fixture
def settings_session(session):
    """Sign in as the owner of an organization with rows of every kind."""
    organization = session.workspace.organization
    Membership.objects.update_or_create(
        organization=organization,
        user=session.user,
        defaults={"role": "owner", "custom_role": None},
    )
    create_marked_rows(session.workspace, "a-person-with-quite-a-long-name-to-show")
    issue_key(organization=organization, name="Organization key", scopes=["admin"])
    issue_personal_key(organization_id=organization.pk, person=session.user, name="Laptop")
    invitations.invite(
        organization_id=organization.pk, role=system_role(Level.ORGANIZATION, "member")
    )
    return session


@VARIANTS
def test_every_settings_page_passes_axe_and_fits_the_viewport(settings_session, variants):
    addresses = [*(f"{settings_session.path}/settings/{name}" for name in PAGES), *ACCOUNT_PATHS]

    assert find_problems(settings_session.page, addresses, variants) == {}


def test_narrow_screen_opens_the_settings_menu_with_one_button(settings_session):
    page = settings_session.page
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(f"{settings_session.path}/settings/general")

    page.get_by_text("All settings").click()
    page.get_by_role("navigation", name="All settings").get_by_role(
        "link", name="Organization members"
    ).click()

    page.get_by_role("heading", name="Organization members").wait_for()
    assert axe_violations(page) == []
