"""Start the emulated account: `python -m operations.emulator.server`, run by the launcher."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
from pathlib import Path

from operations.emulator.server.settings import Settings, parse, prepare_environment


def _listen() -> socket.socket:
    """A listening socket on a free port of the loopback interface.

    The server picks the port itself and keeps it, so no other process can take it in between.
    """
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", 0))
    listener.listen(512)
    return listener


def _announce(file: Path, url: str) -> None:
    unfinished = file.with_suffix(".part")
    unfinished.write_text(url, encoding="utf-8")
    unfinished.replace(file)


async def _serve(settings: Settings, listener: socket.socket, url: str) -> None:
    # MiniStack reads the environment when it is imported, so after prepare_environment only.
    from hypercorn.asyncio import serve
    from hypercorn.config import Config
    from ministack import app

    from operations.emulator.server.assembly import assemble

    account = assemble(settings)
    config = Config()
    config.bind = [f"fd://{listener.fileno()}"]
    if settings.enforce_iam:
        config.certfile = os.environ["MINISTACK_SSL_CERT"]
        config.keyfile = os.environ["MINISTACK_SSL_KEY"]
    config.keep_alive_timeout = 75
    config.graceful_timeout = 0.5
    config.loglevel = "WARNING"
    # The socket listens already, so whoever calls from now on is answered once the server is up.
    _announce(settings.announcement, url)
    try:
        await serve(app.app, config)
    finally:
        account.close()


def main() -> None:
    """Serve until the launcher ends us."""
    settings = parse(sys.argv[1:])
    listener = _listen()
    port = listener.getsockname()[1]
    prepare_environment(settings, port=port)
    scheme = "http"
    if settings.enforce_iam:
        # Bucket policies deny what is not sent over TLS. Imported here, as few accounts need it.
        from operations.emulator.server.certificate import make_certificate

        make_certificate(settings.work_directory)
        scheme = "https"
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    asyncio.run(_serve(settings, listener, f"{scheme}://127.0.0.1:{port}"))


if __name__ == "__main__":
    main()
