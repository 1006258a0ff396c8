"""Sign-up."""

import pytest
from django.test import Client

from apps.organizations.models import Membership, Organization, User
from tests.accounts.conftest import create_user, find_link, is_signed_in, sign_in, sign_up
from tests.factories.organizations import UserFactory

pytestmark = pytest.mark.django_db


def test_sign_up_is_closed_by_default(client):
    page = client.get("/sign-up")
    response = sign_up(client)

    assert b"Sign-up is closed" in page.content
    assert b"Sign-up is closed" in response.content
    assert not User.objects.filter(email="ada@example.com").exists()


@pytest.mark.usefixtures("open_sign_up")
class TestOpenSignUp:
    def test_new_user_verifies_the_address_and_owns_an_organization(self, client, mailoutbox):
        response = sign_up(client, name="Ada", organization="Engines")

        assert response["Location"] == "/account/verify"
        assert not is_signed_in(client)
        [mail] = mailoutbox
        assert mail.to == ["ada@example.com"]
        client.post(find_link(mail))
        user = User.objects.get(email="ada@example.com")
        assert (user.name, user.email_verified_at is not None) == ("Ada", True)
        assert is_signed_in(client)
        membership = Membership.objects.get(user=user)
        assert (membership.organization.name, membership.role) == ("Engines", "owner")

    def test_sign_in_with_an_unverified_address_requires_verification(self, client, mailoutbox):
        sign_up(client)

        response = sign_in(Client(), "ada@example.com")

        assert response["Location"] == "/account/verify"

    def test_sign_up_without_an_organization_name_creates_a_personal_organization(self, client):
        sign_up(client)

        membership = Membership.objects.get(user__email="ada@example.com")
        assert membership.organization.is_personal is True

    def test_sign_up_with_the_name_of_an_existing_organization_does_not_join_it(self, client):
        UserFactory()
        Organization.objects.create(name="Engines")

        response = sign_up(client, organization="Engines")

        assert response.status_code == 422
        assert b"An organization with this name already exists" in response.content
        assert not User.objects.filter(email="ada@example.com").exists()

    def test_sign_up_with_a_known_address_is_reported_by_email_only(self, client, mailoutbox):
        create_user("ada@example.com")

        response = sign_up(client)

        assert response["Location"] == "/account/verify"
        [mail] = mailoutbox
        assert "this address already exists" in mail.body
        assert User.objects.filter(email="ada@example.com").count() == 1

    @pytest.mark.parametrize("password", ["short", "password123"])
    def test_weak_password_is_rejected(self, client, password):
        response = sign_up(client, password1=password)

        assert response.status_code == 422
        assert not User.objects.exists()

    def test_sign_up_without_a_mail_server_needs_no_verification(
        self, client, settings, mailoutbox
    ):
        settings.EMAIL_HOST = ""
        settings.ACCOUNT_EMAIL_VERIFICATION = "none"

        response = sign_up(client)

        assert response["Location"] == "/"
        assert is_signed_in(client)
        assert mailoutbox == []
        assert User.objects.get().email_verified_at is None
