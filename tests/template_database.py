"""One migrated database per test run, which the workers of pytest-xdist copy."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from django.conf import settings
from django.db import connection

NAME = "test_slipway_template"


def use(folder: Path) -> None:
    """Make the template, or wait until another worker has made it; then let Django copy it.

    `folder` belongs to the whole test run.
    """
    with (folder / "template_database.lock").open("a+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        # Not `tell`: another worker may have written since the file was opened.
        if os.fstat(lock.fileno()).st_size == 0:
            _create()
            lock.write("created")
            lock.flush()
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
