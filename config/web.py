"""The web process: uvicorn, set up for long streams behind a short stop."""

import argparse
import socket

import uvicorn

from config.env import env

STOP_SECONDS = 5


def main() -> None:
    """Serve on the socket that the supervisor holds (`--fd`), or on HOST and PORT."""
    parser = argparse.ArgumentParser(prog="config.web", description=__doc__)
    parser.add_argument("--fd", type=int, help="an inherited listening socket")
    options = parser.parse_args()
    config = uvicorn.Config(
        "config.asgi:application",
        host=env().host,
        port=env().port,
        loop="uvloop",
        http="httptools",
        ws="websockets-sansio",
        log_config=None,
        access_log=False,
        server_header=False,
        # A stream lasts as long as its reader likes, and readers come back by Last-Event-ID.
        timeout_graceful_shutdown=STOP_SECONDS,
        timeout_keep_alive=75,
    )
    listeners = [socket.socket(fileno=options.fd)] if options.fd is not None else None
    uvicorn.Server(config).run(sockets=listeners)


if __name__ == "__main__":
    main()
