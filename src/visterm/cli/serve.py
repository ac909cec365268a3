"""`visterm serve`: a catalogue over HTTP, for people and programs; of a folder of photos, it is made first."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Annotated

import typer

from visterm.cli import options
from visterm.cli.command_line import imported_when_used
from visterm.cli.output import Bars, say
from visterm.core.errors import UserError

with imported_when_used():
    from visterm.connectors import keys
    from visterm.core import persist
    from visterm.learning import fit_request
    from visterm.library import info, start
    from visterm.web import app as web_app
    from visterm.web import roles, server
    from visterm.web import workers as worker_processes

EXAMPLES = (
    ("visterm serve photos", "make a catalogue of a folder of photos, and keep it up to date"),
    ("visterm serve catalogue", "for this machine only"),
    ("visterm serve catalogue --host 0.0.0.0 --token-file token.txt --name photos.home", "for others"),
)
MIN_TOKEN_LENGTH = 16
END_SECONDS = 5.0  # Time for the process that watches the photos to store what it has, when the service ends
WATCH = (
    "import os; getattr(os, 'nice', int)(10); from visterm.core import threads; threads.end_with_standard_input(); "
    "from visterm.cli import main; main()"
)
"""Program that runs a command, at a lower priority, as long as this process runs."""


def serve(
    folder: Annotated[
        Path, options.argument(metavar="FOLDER", help="A folder of photos, or a catalogue written by `visterm index`.")
    ],
    out: Annotated[
        Path | None, options.out_option(help="The catalogue of a folder of photos [default: a folder among your data].")
    ] = None,
    host: Annotated[
        str, typer.Option(help="Address to listen on; if other machines can reach it, --token-file is required.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 for any free one.")] = 8080,
    token_file: Annotated[
        list[str] | None,
        typer.Option(
            help="File that only you can read, with a token of 16 characters or more, required in every request. For "
            "more people repeat it, as reader:FILE (search), reviewer:FILE (also tag) or owner:FILE (all); the file's "
            "name is the person's.",
            metavar="[ROLE:]FILE",
            show_default=False,
        ),
    ] = None,
    person_header: Annotated[
        str, typer.Option(help="Header in which a proxy names the person who sends a request.", show_default=False)
    ] = "",
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
    may_write: Annotated[
        bool, typer.Option("--may-write", help="Let other machines write tags into files of photos, too.")
    ] = False,
    workers: Annotated[
        int | None,
        typer.Option(min=1, help="Processes that answer [default: one per core, at most 4].", show_default=False),
    ] = None,
) -> None:
    """Serve photos or a catalogue as a web page and an API.

    For a folder of photos it makes a catalogue, learns the tags of the photos, and watches the folder; run it again to
    continue. On the page you search, tag and review photos; programs use the API (/api/v1/docs). By default it can be
    reached from this machine only. It connects only to the hosts of --vision-host.
    """
    tokens = _read_tokens(token_file or ())
    if not tokens and not roles.is_loopback(host):
        raise UserError(
            f"--host {host} can be reached from other machines, so it needs a token. Make one and pass its file: "
            "umask 077; python -c 'import secrets; print(secrets.token_urlsafe())' > token.txt; visterm serve ... "
            "--token-file token.txt"
        )

    access = roles.Access.of(host, tokens, name or (), vision_host or (), person_header, may_write=may_write)
    if (workers or 1) > 1 and not worker_processes.shares_connections():
        raise UserError(f"--workers {workers}: on this system one process answers. Leave the option out.")
    if not folder.exists():
        raise UserError(f"There is no folder {folder}. Name a folder of photos, or a catalogue.")
    is_of_photos = persist.folder_kind(folder) is None and folder.is_dir()
    catalogue = folder
    if is_of_photos:
        catalogue = out or start.catalogue_of(folder)
        is_new = start.open_or_start(folder, catalogue, fit_request.FitRequest(), Bars(lines=False))
        say(f"{'New catalogue' if is_new else 'Catalogue'} of {folder}: {catalogue}")
    elif out is not None:
        raise UserError(f"-o is for a folder of photos, and {folder} is not one. Leave it out.")
    n_workers = workers or worker_processes.default_workers(catalogue)

    def announce(address: str) -> None:
        processes = f"{n_workers} processes answer" if n_workers > 1 else "one process answers"
        say(
            f"Serving {catalogue} at {address} ({processes}; see --workers). Ctrl-C ends it. API: {address}/api/v1/docs"
        )
        if (line := info.encoder_advice(catalogue)) is not None:
            say(line)

    with _watching(catalogue) if is_of_photos else nullcontext():
        if n_workers == 1:
            app = web_app.create_app(catalogue, access=access)
            server.run_server(app, host, port, announce)
        else:
            worker_processes.run_workers(n_workers, catalogue, host, port, announce, access=access)


@contextmanager
def _watching(catalogue: Path) -> Iterator[None]:
    """Run `visterm watch` beside the service, in a process of its own: photos come in, and their tags are learned."""
    with subprocess.Popen([sys.executable, "-c", WATCH, "watch", str(catalogue)], stdin=subprocess.PIPE) as process:
        try:
            yield
        finally:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):  # it may be learning: a kill loses nothing
                process.wait(END_SECONDS)
            process.kill()


def _read_tokens(values: Sequence[str]) -> list[roles.AccessToken]:
    """Return the tokens of files, ``[ROLE:]FILE``. Raises UserError if one cannot be used, or two are the same."""
    tokens: list[roles.AccessToken] = []
    for value in values:
        role, _, file = value.partition(":")
        if role.upper() not in roles.Role.__members__:
            role, file = "owner", value
        text = _read_token(Path(file))
        if any(token.text == text for token in tokens):
            problem, advice = f"The token in {file} is also in another file.", "Give each person a token of their own."
            raise UserError(problem, setting="token_file", value=file, advice=advice)
        tokens.append(roles.AccessToken(text, roles.Role[role.upper()], Path(file).stem))
    return tokens


def _read_token(file: Path) -> str:
    token = keys.read_secret("token", file)
    if len(token) < MIN_TOKEN_LENGTH:
        raise UserError(f"The token in {file} has {len(token)} characters; expected {MIN_TOKEN_LENGTH} or more.")
    return token
