"""A chat page on another origin than the agent, bundled and served for tests."""

from __future__ import annotations

import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from config.env import BASE_DIR
from tests.browser.chromium import CHROMIUM_PATH
from tests.compatibility.chosen_clients import place_script

HERE = Path(__file__).parent
_ESBUILD = BASE_DIR / "node_modules/.bin/esbuild"


def missing_reason() -> str | None:
    """Return why the page cannot be shown on this machine, or None."""
    if CHROMIUM_PATH is None:
        return "there is no Chromium: apt-get install chromium-headless-shell"
    if shutil.which("node") is None or not (BASE_DIR / "node_modules/react-dom").exists():
        return "`npm install` puts React there"
    return None


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Write no access log."""


@contextmanager
def serve_page(folder: Path) -> Iterator[str]:
    """Bundle the page into `folder`, serve it and yield its address."""
    options = ["--bundle", "--format=esm", "--jsx=automatic", "--log-level=error"]
    mode = '--define:process.env.NODE_ENV="development"'
    subprocess.run(
        [
            _ESBUILD,
            place_script(HERE / "page.jsx"),
            *options,
            mode,
            f"--outfile={folder / 'page.js'}",
        ],
        check=True,
        cwd=BASE_DIR,
        timeout=120,
    )
    shutil.copy(HERE / "index.html", folder)
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=folder))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()
    thread.join(30)
