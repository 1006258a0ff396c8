"""The browser that tests and screenshots drive: the machine's own."""

import shutil

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
