"""One of the processes that answer requests, see `workers`; it ends with the one that supervises it.

``python -m visterm.web.worker`` reads its settings, a line of JSON, from standard input.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
from typing import Any

from visterm.core.threads import end_with_standard_input


def main() -> None:
    """Answer the requests of the connections that the supervisor sends."""
    settings: dict[str, Any] = json.loads(sys.stdin.readline())
    end_with_standard_input()
    os.environ["PROMETHEUS_MULTIPROC_DIR"] = settings["metrics"]  # read when prometheus_client is imported
    from visterm.core.errors import VistermError
    from visterm.web.app import create_app
    from visterm.web.figures import Figures, Member
    from visterm.web.security import Access
    from visterm.web.server import Server

    channel = socket.socket(fileno=settings["channel"])

    def tell(what: str, *arguments: Any) -> None:
        channel.sendall(json.dumps([what, *arguments]).encode() + b"\n")

    n_workers, number = settings["n_workers"], settings["number"]
    figures = Figures(n_workers + 1, number, settings["figures"])
    member = Member(figures, n_workers, tell, os.getppid(), settings["metrics"])
    hosts, fetched = frozenset(settings["hosts"]), frozenset(settings["fetched_hosts"])
    access = Access(settings["token"], hosts, settings["any_address"], fetched)
    try:
        app = create_app(
            settings["catalogue"], access=access, folders=settings["folders"], n_jobs=settings["n_jobs"], member=member
        )
    except VistermError as error:
        tell("failed", str(error))
        return
    service = app.state.service

    def news() -> None:
        catching_up.add(task := asyncio.get_running_loop().create_task(service.catch_up()))
        task.add_done_callback(catching_up.discard)

    catching_up: set[asyncio.Task[None]] = set()
    server = Server(app, member, lambda: tell("ready"), channel=channel, news=news)
    server.run_alone([])


if __name__ == "__main__":
    main()
