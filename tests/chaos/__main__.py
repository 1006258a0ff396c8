"""The long form: `python -m tests.chaos SECONDS [SEED]`."""

from __future__ import annotations

import secrets
import sys

from tests.chaos.trial import trial
from tests.gate import run_folder
from tests.installation import Installation


def main() -> int:
    seconds, seed = float(sys.argv[1]), "".join(sys.argv[2:3]) or secrets.token_hex(4)
    print(f"chaos for {seconds:.0f} s with seed {seed}", flush=True)  # noqa: T201
    with run_folder.use() as folder:
        installation = Installation(folder / "data")
        installation.start()
        try:
            installation.wait_until_ready()
            outcome = trial(installation, installation.bootstrap()["api_key"], seed, seconds)
        finally:
            installation.stop()
    print(outcome)  # noqa: T201
    return 1 if outcome.violations else 0


sys.exit(main())
