"""The folder of one test run: everything that its processes write to the disk lies there.

Folders of runs that were killed are removed when the next run begins, so they never fill the disk.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

FOLDER = "SLIPWAY_TEST_FOLDER"
"""The environment variable with the folder of the test run."""
RUN = "SLIPWAY_TEST_RUN"
"""The environment variable with the id of the main process of the test run."""
MAX_GB = 20
_PARENT = f"slipway-tests-{os.geteuid()}"
_OWNER = "owner"


def create() -> Path:
    """Create the folder of this process's run and make it the folder for temporary files."""
    parent = Path(tempfile.gettempdir(), _PARENT)
    parent.mkdir(exist_ok=True)
    # Users of services and sandboxes must be able to traverse the folders.
    parent.chmod(0o711)
    remove_leftovers(parent)
    # Short names: paths of sockets have at most 107 bytes.
    folder = Path(tempfile.mkdtemp(prefix="", dir=parent))
    folder.chmod(0o1777)
    process = psutil.Process()
    (folder / _OWNER).write_text(f"{process.pid} {process.create_time()}")
    os.environ.update({FOLDER: str(folder), RUN: str(process.pid), "TMPDIR": str(folder)})
    tempfile.tempdir = str(folder)
    return folder


def remove(folder: Path) -> None:
    """Delete a run's folder, also what other users wrote there."""
    os.environ.pop(FOLDER, None)
    os.environ.pop("TMPDIR", None)
    tempfile.tempdir = None
    shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def use() -> Iterator[Path]:
    """Yield the folder of this process's run and delete it in the end."""
    folder = create()
    try:
        yield folder
    finally:
        remove(folder)


def remove_leftovers(parent: Path) -> None:
    """Delete folders of runs whose main process has ended, and end what they left running."""
    for folder in parent.iterdir():
        if not _is_owned(folder):
            _end_processes(folder)
            shutil.rmtree(folder, ignore_errors=True)


def read_size_gb(folder: Path) -> float:
    command = ["du", "-s", "--block-size=1M", str(folder)]
    # Files vanish while `du` reads, which is an error to it.
    output = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    return int(output.split()[0]) / 1024 if output else 0.0


def _is_owned(folder: Path) -> bool:
    try:
        pid, created = (folder / _OWNER).read_text().split()
        return psutil.Process(int(pid)).create_time() == float(created)
    except (OSError, ValueError, psutil.NoSuchProcess):
        return False


def _end_processes(folder: Path) -> None:
    """Kill processes whose environment or working folder names the folder."""
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            variables = process.environ()
            if variables.get(FOLDER) == str(folder) or process.cwd().startswith(f"{folder}/"):
                process.kill()
