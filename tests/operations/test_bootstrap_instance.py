import pytest

from apps.operators.management.commands import bootstrap_instance
from apps.organizations.models import User


@pytest.mark.django_db
def test_password_that_begins_with_a_dash_is_accepted(settings, tmp_path):
    settings.DATA_DIR = tmp_path
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "admin_password").write_text("-dash-first")

    facts = bootstrap_instance._bootstrap()

    assert facts["password"] == "-dash-first"
    assert User.objects.get().check_password("-dash-first")
