from uuid import UUID

import pytest

from apps.console.sample_data import find_sample_project, remove_sample_data
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


@pytest.mark.django_db
@pytest.mark.parametrize("is_wanted", [True, False])
def test_only_the_first_start_loads_the_sample_data(settings, tmp_path, is_wanted):
    settings.DATA_DIR, settings.SAMPLE_DATA = tmp_path, is_wanted

    workspace_id = UUID(bootstrap_instance._bootstrap()["workspace_id"])

    assert (find_sample_project(workspace_id) is not None) == is_wanted
    remove_sample_data(workspace_id)
    bootstrap_instance._bootstrap()
    assert find_sample_project(workspace_id) is None
