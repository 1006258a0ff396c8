"""Path of the Chromium that tests and screenshots run."""

import shutil

# The shell has no windows, whose toolbars cost more CPU time than most pages.
PROGRAMS = ("chromium-headless-shell", "chromium", "google-chrome")
CHROMIUM_PATH = next(filter(None, map(shutil.which, PROGRAMS)), None)
