"""Pages show times in the user's time zone; APIs answer in UTC."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from django.http import HttpResponse
from django.utils import timezone

from apps.audit.actions import Action
from apps.audit.models import Entry
from apps.organizations.models import User
from apps.organizations.views.audit_log import settings_audit
from apps.tracing.api.info import InfoView
from apps.tracing.pages.periods import read_period
from apps.web_ui import formatting
from apps.web_ui.time_zone import COOKIE, TimeZoneMiddleware, zone_label
from tests.console.conftest import signed_in
from tests.factories.organizations import MembershipFactory

AT = datetime(2026, 1, 15, 23, 30, 5, 7000, UTC)


pytestmark = pytest.mark.django_db


@pytest.fixture
def owner(workspace):
    return MembershipFactory(organization=workspace.organization, role="owner").user


@pytest.fixture
def client(owner):
    return signed_in(owner)


@pytest.fixture
def audit_entry(workspace, owner):
    return Entry.objects.create(
        action=Action.USER_UPDATED, organization_id=workspace.organization_id, at=AT
    )


def read_audit_page(client, workspace, **query):
    url = f"/o/{workspace.pk}/settings/audit"
    return client.get(url, query).content.decode()


@pytest.mark.parametrize(
    ("cookie", "expected", "zone"),
    [
        ("", "15 Jan 2026 23:30:05.007", "UTC"),
        ("Europe/Berlin", "16 Jan 2026 00:30:05.007", "Europe/Berlin"),
        ("Asia%2FKolkata", "16 Jan 2026 05:00:05.007", "Asia/Kolkata"),
        ("Mars/Olympus", "15 Jan 2026 23:30:05.007", "UTC"),
        ("../../etc/passwd", "15 Jan 2026 23:30:05.007", "UTC"),
    ],
)
def test_a_page_shows_times_in_the_zone_of_the_browser(  # noqa: PLR0917  (a table)
    client, workspace, audit_entry, cookie, expected, zone
):
    client.cookies[COOKIE] = cookie

    page = read_audit_page(client, workspace)

    assert expected in page
    assert f'data-time-zone="{zone}"' in page


def test_the_zone_of_the_profile_goes_before_that_of_the_browser(
    client, workspace, owner, audit_entry
):
    client.cookies[COOKIE] = "Europe/Berlin"

    response = client.post("/account", {"name": "Ann", "time_zone": "America/New_York"})

    assert response.status_code == 302
    assert User.objects.get(pk=owner.pk).time_zone == "America/New_York"
    assert "15 Jan 2026 18:30:05.007" in read_audit_page(client, workspace)


def test_an_unknown_zone_in_the_profile_is_refused(client, workspace, owner):
    response = client.post("/account", {"name": "Ann", "time_zone": "Mars/Olympus"})

    assert response.status_code == 422
    assert User.objects.get(pk=owner.pk).time_zone == ""


def test_days_of_a_form_begin_at_midnight_in_the_zone(client, workspace, audit_entry):
    """Half past eleven of the 15th in UTC belongs to the 16th in Berlin."""
    row = "16 Jan 2026 00:30:05.007"
    client.cookies[COOKIE] = "Europe/Berlin"

    assert row in read_audit_page(client, workspace, begin="2026-01-16", end="2026-01-16")
    assert row not in read_audit_page(client, workspace, begin="2026-01-15", end="2026-01-15")


@pytest.mark.parametrize(
    ("view", "zone"), [(settings_audit, "Europe/Berlin"), (InfoView.as_view(), "UTC")]
)
def test_the_zone_is_active_in_pages_and_not_in_apis(rf, view, zone):
    request = rf.get("/", HTTP_COOKIE=f"{COOKIE}=Europe/Berlin")
    seen = []

    def respond(request):
        middleware.process_view(request, view, (), {})
        seen.append(timezone.get_current_timezone_name())
        return HttpResponse()

    middleware = TimeZoneMiddleware(respond)
    middleware(request)

    assert seen == [zone]
    assert timezone.get_current_timezone_name() == "UTC"


def test_times_without_an_offset_in_a_period_are_in_the_zone():
    with timezone.override("America/New_York"):
        period = read_period({"from": "2026-01-15T18:30", "to": "2026-01-15T23:30:00Z"})

        assert period.start == period.end == datetime(2026, 1, 15, 23, 30, tzinfo=UTC)
        assert period.label == "15 Jan 2026 18:30 to 15 Jan 2026 18:30"


@pytest.mark.parametrize(
    ("zone", "label"),
    [("UTC", "UTC"), ("Asia/Kolkata", "IST"), ("Europe/Istanbul", "UTC+03")],
)
def test_the_label_of_a_zone_is_its_abbreviation(zone, label):
    with timezone.override(zone):
        assert zone_label() == label


def test_the_first_and_last_times_of_all_can_be_formatted():
    with timezone.override("America/New_York"):
        assert formatting.format_exact_time(datetime(1, 1, 1, tzinfo=UTC)).startswith("1 Jan ")
    with timezone.override("Asia/Tokyo"):
        last = datetime(9999, 12, 31, 23, tzinfo=UTC)
        assert formatting.format_date_time(last) == "31 Dec 9999 23:00"
