"""`visterm serve`: a catalogue over HTTP, for people and programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from visterm.cli import options
from visterm.cli.command_line import imported_when_used
from visterm.cli.output import say
from visterm.core.errors import UserError

with imported_when_used():
    from visterm.connectors import keys
    from visterm.library import info
    from visterm.web import app as web_app
    from visterm.web import security, server
    from visterm.web import workers as worker_processes

EXAMPLES = (
    ("visterm serve catalogue", "for this machine only"),
    ("visterm serve catalogue --host 0.0.0.0 --token-file token.txt --name photos.home", "for others"),
)
MIN_TOKEN_LENGTH = 16


def serve(
    catalogue: options.CatalogueFolder,
    host: Annotated[
        str, typer.Option(help="Address to listen on; other than this machine it needs a token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 for any free one.")] = 8080,
    token_file: Annotated[
        Path | None,
        typer.Option(
            help="File that only you can read, with a token of at least 16 letters, required in every request.",
            show_default=False,
        ),
    ] = None,
    name: Annotated[
        list[str] | None,
        typer.Option(help="A host name of this machine; requests to other names are refused. Repeat for more."),
    ] = None,
    vision_host: Annotated[
        list[str] | None,
        typer.Option(
            help="A host from which pictures may be fetched for PhotoPrism [default: none]; without a port, from 80 "
            "and 443 only. Repeat for more.",
            metavar="HOST[:PORT]",
            show_default=False,
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(min=1, help="Processes that answer [default: one per core, at most 4].", show_default=False),
    ] = None,
) -> None:
    """Serve a catalogue as a web page and an API.

    On the page you search, tag and review photos; programs use the API (/api/v1/docs). By default it can be reached
    from this machine only. It connects only to the hosts of --vision-host.
    """
    token = "" if token_file is None else _read_token(token_file)
    if not token and not security.is_loopback(host):
        raise UserError(
            f"--host {host} can be reached from other machines, so it needs a token. Make one and pass its file: "
            "umask 077; python -c 'import secrets; print(secrets.token_urlsafe())' > token.txt; visterm serve ... "
            "--token-file token.txt"
        )

    access = security.Access.of(host, token, name or (), vision_host or ())
    if (workers or 1) > 1 and not worker_processes.shares_connections():
        raise UserError(f"--workers {workers}: on this system one process answers. Leave the option out.")
    n_workers = workers or worker_processes.default_workers(catalogue)

    def announce(address: str) -> None:
        processes = f"{n_workers} processes answer (--workers)" if n_workers > 1 else "one process answers (--workers)"
        say(
            f"Serving {catalogue} at {address} ({processes}; Ctrl-C ends it; the API is described at "
            f"{address}/api/v1/docs)"
        )
        if (line := info.encoder_advice(catalogue)) is not None:
            say(line)

    if n_workers == 1:
        app = web_app.create_app(catalogue, access=access)
        server.run_server(app, host, port, announce)
    else:
        worker_processes.run_workers(n_workers, catalogue, host, port, announce, access=access)


def _read_token(file: Path) -> str:
    token = keys.read_secret("token", file)
    if len(token) < MIN_TOKEN_LENGTH:
        raise UserError(f"The token in {file} has {len(token)} letters; expected {MIN_TOKEN_LENGTH} or more.")
    return token
