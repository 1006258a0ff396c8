"""The long chaos trial: `python -m tests.chaos SECONDS [SEED]`."""

from __future__ import annotations

import secrets
import sys

from tests.chaos.trial import TrialLength, run_trial
from tests.crash import recorder
from tests.gate import run_folder
from tests.installation import Installation


def main() -> int:
    seconds, seed = float(sys.argv[1]), "".join(sys.argv[2:3]) or secrets.token_hex(4)
    print(f"chaos for {seconds:.0f} s with seed {seed}", flush=True)  # noqa: T201
    with run_folder.use() as folder:
        installation = Installation(folder / "data", EGRESS_NETWORKS=recorder.NETWORK)
        installation.start()
        try:
            installation.wait_until_ready()
            key = installation.bootstrap()["api_key"]
            result = run_trial(installation, key, seed, TrialLength(seconds=seconds))
        finally:
            installation.stop()
    print(result)  # noqa: T201
    return 1 if result.violations else 0


sys.exit(main())
