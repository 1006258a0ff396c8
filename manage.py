#!/usr/bin/env python
"""Django's command line."""

import os
import sys
from contextlib import suppress
from pathlib import Path

from django.core.management import execute_from_command_line
from django.db.utils import OperationalError

from apps.core.instance import BASE_DIR, Instance


def use_port_of_installation() -> None:
    """Set `PORT`, if it is not set, to that of the last start on the data folder.

    Commands print addresses: with another port they would be those of nothing.
    """
    if not os.environ.get("PORT"):
        instance = Instance(Path(os.environ.get("DATA_DIR") or BASE_DIR / "var"))
        with suppress(OSError):
            os.environ["PORT"] = instance.port_file.read_text()


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    use_port_of_installation()
    try:
        execute_from_command_line(sys.argv)
    except OperationalError as error:
        from django.conf import settings

        if "connection" not in str(error):
            raise
        reason = str(error).splitlines()[0]
        sys.exit(f"No database answers for the data folder {settings.DATA_DIR}: {reason}")
