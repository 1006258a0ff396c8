"""`python -m config.supervisor`: the program that `make up` runs after the installation."""

import argparse
import asyncio
import sys

from pydantic import ValidationError

from apps.core.instance import UnsafeSocketFolder
from config.embedded.launch import CannotStart
from config.env import env
from config.supervisor.lifecycle import InstanceLifecycle
from config.supervisor.regions import Regions, parse
from config.supervisor.terminal import Terminal


def main() -> int:
    parser = argparse.ArgumentParser(prog="config.supervisor", description=__doc__)
    parser.add_argument(
        "--services-only", action="store_true", help="start PostgreSQL and Redis only, for tests"
    )
    parser.add_argument("--companion", type=int, metavar="PID", help="stop when this process ends")
    parser.add_argument("--regions", help="start one installation per region, for example us,eu")
    options = parser.parse_args()
    try:
        if options.regions:
            regions = Regions(env(), parse(options.regions), companion=options.companion)
            return asyncio.run(regions.run())
        lifecycle = InstanceLifecycle(
            env(), services_only=options.services_only, companion=options.companion
        )
        asyncio.run(lifecycle.run())
    except (CannotStart, UnsafeSocketFolder) as error:
        Terminal().failed(str(error))
        return 1
    except ValidationError as error:
        problems = "; ".join(
            f"{str(part['loc'][0]).upper()}: {part['msg'].lower()}" for part in error.errors()
        )
        Terminal().failed(f"{problems}.")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
