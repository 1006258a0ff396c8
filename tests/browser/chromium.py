"""Path of the Chromium that tests and screenshots run."""

import shutil

CHROMIUM_PATH = shutil.which("chromium") or shutil.which("google-chrome")
