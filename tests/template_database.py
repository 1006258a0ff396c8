"""One migrated database per test run, which the workers of pytest-xdist copy."""

from __future__ import annotations

import os
from pathlib import Path

from django.conf import settings
from django.db import connection

from tests.file_lock import hold_lock

NAME = "test_slipway_template"
CREATION_SECONDS = 150


def use(folder: Path) -> None:
    """Make the template, or wait until another worker has made it; then let Django copy it.

    `folder` belongs to the whole test run.
    """
    with hold_lock(folder / "template_database.lock", CREATION_SECONDS) as lock:
        if os.fstat(lock).st_size == 0:
            _create()
            os.write(lock, b"created")
    # The copy has all tables: Django only looks for missing ones and sends post_migrate.
    connection.settings_dict["TEST"].update(TEMPLATE=NAME, MIGRATE=False)


def _create() -> None:
    test_settings = connection.settings_dict["TEST"]
    own_name, test_name = connection.settings_dict["NAME"], test_settings["NAME"]
    test_settings["NAME"] = NAME
    try:
        connection.creation.create_test_db(verbosity=0, autoclobber=True, serialize=False)
    finally:
        # A template can only be copied while no process is connected to it.
        connection.close()
        test_settings["NAME"] = test_name
        connection.settings_dict["NAME"] = settings.DATABASES["default"]["NAME"] = own_name
