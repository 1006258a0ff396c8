"""allauth's views at our paths. The URL names are those that allauth reverses."""

from __future__ import annotations

from allauth.account import views as account
from allauth.mfa.base import views as mfa
from allauth.mfa.recovery_codes import views as recovery
from allauth.mfa.totp import views as totp
from allauth.socialaccount import views as social
from allauth.socialaccount.providers.openid_connect import views as oidc
from django.urls import path, register_converter
from django.urls.converters import StringConverter
from django.views.generic import RedirectView

from apps.accounts import client_sign_in, views
from apps.accounts.views import account_page, public_page


class WordConverter(StringConverter):
    """Letters and digits up to the first dash."""

    regex = "[0-9A-Za-z]+"


register_converter(WordConverter, "word")
_WELL_KNOWN = ".well-known/oauth-authorization-server"

urlpatterns = [
    path("sign-up", public_page(account.signup), name="account_signup"),
    # allauth redirects here; the console app has the sign-in and sign-out pages.
    path("account/sign-in", RedirectView.as_view(pattern_name="sign-in"), name="account_login"),
    path("account/inactive", public_page(account.account_inactive), name="account_inactive"),
    # Profile and email address
    path("account", account_page(views.profile), name="account-profile"),
    path("account/emails", account_page(account.email), name="account_email"),
    path(
        "account/verify",
        public_page(account.email_verification_sent),
        name="account_email_verification_sent",
    ),
    path(
        "account/verify/<str:key>", public_page(account.confirm_email), name="account_confirm_email"
    ),
    # Passwords
    path("account/password", account_page(account.password_change), name="account_change_password"),
    path("account/password/set", account_page(account.password_set), name="account_set_password"),
    path(
        "account/password/reset", public_page(account.password_reset), name="account_reset_password"
    ),
    path(
        "account/password/reset/sent",
        public_page(account.password_reset_done),
        name="account_reset_password_done",
    ),
    path(
        "account/password/reset/<word:uidb36>-<str:key>",
        public_page(account.password_reset_from_key),
        name="account_reset_password_from_key",
    ),
    path(
        "account/password/reset/done",
        public_page(account.password_reset_from_key_done),
        name="account_reset_password_from_key_done",
    ),
    path("account/again", account_page(account.reauthenticate), name="account_reauthenticate"),
    # Second factor
    path("account/second-factor", account_page(mfa.index), name="mfa_index"),
    path("account/second-factor/code", public_page(mfa.authenticate), name="mfa_authenticate"),
    path(
        "account/second-factor/again", account_page(mfa.reauthenticate), name="mfa_reauthenticate"
    ),
    path("account/second-factor/on", account_page(totp.activate_totp), name="mfa_activate_totp"),
    path(
        "account/second-factor/off", account_page(totp.deactivate_totp), name="mfa_deactivate_totp"
    ),
    path(
        "account/recovery-codes",
        account_page(recovery.view_recovery_codes),
        name="mfa_view_recovery_codes",
    ),
    path(
        "account/recovery-codes/new",
        account_page(recovery.generate_recovery_codes),
        name="mfa_generate_recovery_codes",
    ),
    path(
        "account/recovery-codes/file",
        account_page(recovery.download_recovery_codes),
        name="mfa_download_recovery_codes",
    ),
    # Sessions
    path("account/sessions", account_page(views.sessions), name="usersessions_list"),
    path(
        "account/sessions/<int:session_id>/end", account_page(views.end_session), name="session-end"
    ),
    # Sign-in of command-line clients
    path("account/device", account_page(client_sign_in.approval_page), name="client-sign-in"),
    path("account/device/done", account_page(client_sign_in.done_page), name="client-sign-in-done"),
    path("oauth/device/code", client_sign_in.device_code, name="oauth-device-code"),
    path("oauth/token", client_sign_in.token, name="oauth-token"),
    path(_WELL_KNOWN, client_sign_in.metadata, name="oauth-metadata"),
    # RFC 8414 inserts the well-known part before the path of an issuer.
    path(f"{_WELL_KNOWN}/api", client_sign_in.metadata, {"mount": "api"}),
    # Identity providers
    path("account/oidc/<str:provider_id>", public_page(oidc.login), name="openid_connect_login"),
    path(
        "account/oidc/<str:provider_id>/callback",
        public_page(oidc.callback),
        name="openid_connect_callback",
    ),
    path("account/connections", account_page(social.connections), name="socialaccount_connections"),
    path("account/oidc-sign-up", public_page(social.signup), name="socialaccount_signup"),
    path(
        "account/oidc-cancelled",
        public_page(social.login_cancelled),
        name="socialaccount_login_cancelled",
    ),
    path("account/oidc-failed", public_page(social.login_error), name="socialaccount_login_error"),
]
