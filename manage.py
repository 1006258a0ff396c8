#!/usr/bin/env python
"""Django's command line."""

import os
import sys

from django.core.management import execute_from_command_line
from django.db.utils import OperationalError

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    try:
        execute_from_command_line(sys.argv)
    except OperationalError as error:
        from django.conf import settings

        if "connection" not in str(error):
            raise
        reason = str(error).splitlines()[0]
        sys.exit(f"No database answers for the data folder {settings.DATA_DIR}: {reason}")
