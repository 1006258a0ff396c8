"""`python -m config.supervisor`: what `make up` runs once everything is installed."""

import argparse
import asyncio
import os
import signal
import sys

from pydantic import ValidationError

from config.embedded.launch import CannotStart
from config.embedded.paths import UnsafePlace
from config.embedded.tether import tie_to_parent
from config.env import env
from config.supervisor.boot import Boot
from config.supervisor.terminal import Terminal


def main() -> int:
    parser = argparse.ArgumentParser(prog="config.supervisor", description=__doc__)
    parser.add_argument(
        "--services-only", action="store_true", help="PostgreSQL and Redis alone, for tests"
    )
    parser.add_argument(
        "--with-parent", action="store_true", help="stop when the parent process dies"
    )
    options = parser.parse_args()
    if options.with_parent:
        tie_to_parent(os.getppid(), signal.SIGTERM)
    try:
        asyncio.run(Boot(env(), services_only=options.services_only).run())
    except (CannotStart, UnsafePlace) as error:
        Terminal().failed(str(error))
        return 1
    except ValidationError as error:
        wrong = "; ".join(
            f"{str(part['loc'][0]).upper()}: {part['msg'].lower()}" for part in error.errors()
        )
        Terminal().failed(f"{wrong}.")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
