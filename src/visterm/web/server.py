"""The server that an application runs in."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable

import uvicorn
from fastapi import FastAPI

from visterm.core.errors import UserError

SWITCH_SECONDS = 0.001
"""How long a thread that computes keeps others from Python: answers wait for it twice, and Python's 5 ms add up."""

KEEP_ALIVE_SECONDS = 30
END_SECONDS = 5
"""What requests may still take when the service is told to end."""


def run_server(app: FastAPI, host: str, port: int, announce: Callable[[str], None]) -> None:
    """Serve until it is told to end; `announce` is told the address as soon as it answers there.

    Raises
    ------
    UserError
        If the port is in use, or the address is not one of this machine.
    """
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=END_SECONDS,
    )
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        bound = socket.create_server((host, port), family=family, backlog=config.backlog)
    except OSError as error:
        why = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
        raise UserError(
            f"{_address(host, port)} cannot be listened at: {why}. Give another port (--port 0 takes a free one) or "
            "an address of this machine (--host)."
        ) from error
    with bound as listening:
        before = sys.getswitchinterval()
        sys.setswitchinterval(SWITCH_SECONDS)
        try:
            _Server(config, lambda: announce(_address(host, listening.getsockname()[1]))).run(sockets=[listening])
        finally:
            sys.setswitchinterval(before)


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, started: Callable[[], None]) -> None:
        super().__init__(config)
        self._started = started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._started()


def _address(host: str, port: int) -> str:
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"
