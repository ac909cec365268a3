"""The page that writes tags for other programs: first what would be written, then that; and downloads of photos."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import IO, Annotated, Literal, cast

from fastapi import APIRouter, Form, Request, Response
from starlette.responses import StreamingResponse

from visterm.core.errors import UserError
from visterm.core.remote import is_remote
from visterm.library.export.items import ExportItem
from visterm.library.export.request import ExportRequest
from visterm.library.export.sources import CatalogueSource, Limits
from visterm.library.export.tables import CSV, table_of
from visterm.library.steps import MAX_PHOTOS
from visterm.store.connected import PARENT
from visterm.store.filters import MAX_INT
from visterm.web.api.jobs import JobId, start_export
from visterm.web.bodies import MEDIUM_BODY, FormFlag, FormText, allow_body
from visterm.web.errors import HttpError
from visterm.web.exports import EXPORT, last_dry_run
from visterm.web.pages.library import answer_job, latest_job
from visterm.web.pages.render import PAGE_HEADERS, PageRoute, render
from visterm.web.service import Service, ServiceDep, in_threads

router = APIRouter(include_in_schema=False, route_class=PageRoute)

PROGRAMS = {
    "xmp": "any program: files beside the photos (XMP)", "digikam": "digiKam", "darktable": "darktable",
    "immich": "Immich", "lightroom": "Lightroom Classic (into the photos)",
    "photoprism": "PhotoPrism (into the photos)", "embed": "any program: into the photos", "txt": "text files",
}  # fmt: skip
"""Targets of an export, and the page's names of them."""

PRECISIONS = {
    "": "likely right (50 % or more)",
    "0.8": "4 in 5 right",
    "0.9": "9 in 10 right",
    "0.95": "19 in 20 right",
}
CHUNK_BYTES = 2**20


@router.get("/write")
@in_threads("searching")
def write_page(request: Request, service: ServiceDep) -> Response:
    """Show the form, and the last export."""
    return render(
        "write.html", programs=PROGRAMS, precisions=PRECISIONS, parent=PARENT,
        may_write=service.access.may_write(request), connection=service.catalogue.stored.connected.get(),
        **latest_job(service, EXPORT),
    )  # fmt: skip


@router.post("/write")
async def try_or_undo(
    request: Request, service: ServiceDep, to: FormText, do: Annotated[Literal["try", "undo"], Form()],
    precision: Annotated[Literal["", "0.8", "0.9", "0.95"], Form()] = "", branch: FormFlag = False,
    take_off: FormFlag = False,
) -> Response:  # fmt: skip
    """Show what would be written, or remove what was written."""
    export = ExportRequest(to=to, undo=True)
    if do == "try":
        limits = Limits(precision=float(precision) if precision else None)
        parent = PARENT if branch else None
        export = ExportRequest(to=to, limits=limits, parent=parent, take_off=take_off, dry_run=True)
    return await _start(request, service, export, into_photos=True)


@router.post("/write/{job_id}")
async def write_tried(job_id: JobId, request: Request, service: ServiceDep, into_photos: FormFlag = False) -> Response:
    """Write what the last dry run showed; `job_id` is its job."""
    tried = await service.searching.run(last_dry_run, service.catalogue.stored)
    if tried is None or tried.job != job_id:
        raise HttpError(409, "Something else was tried or written since. Show again what would be written.")
    return await _start(request, service, replace(tried.request, dry_run=False), into_photos=into_photos)


async def _start(request: Request, service: Service, export: ExportRequest, *, into_photos: bool) -> Response:
    job = await start_export(service, request, export, into_photos=into_photos)
    return await answer_job(request, service, job.id)


@router.post("/chosen/download")
@allow_body(MEDIUM_BODY)
async def download_chosen(request: Request, service: ServiceDep) -> Response:
    """Return the files of the chosen photos as a zip file, or their list with their tags as a table."""
    async with request.form(max_files=0, max_fields=MAX_PHOTOS + 10) as form:
        numbers, kind = [str(value) for value in form.getlist("image")], str(form.get("as", ""))
    ids = [int(number) for number in numbers if number.isascii() and number.isdigit() and int(number) <= MAX_INT]
    if not ids or len(ids) < len(numbers) or kind not in ("zip", CSV):
        raise UserError("Choose photos to download first.", setting="image")
    if kind == CSV:
        text = await service.browsing.run(_table, service, ids)
        return Response(text.encode("utf-8", "replace"), headers=_attachment("photos.csv"), media_type="text/csv")
    files, problems = await service.browsing.run(_files, service, ids)
    return StreamingResponse(_zipped(files, problems), headers=_attachment("photos.zip"), media_type="application/zip")


def _attachment(name: str) -> dict[str, str]:
    return PAGE_HEADERS | {"content-disposition": f'attachment; filename="{name}"'}


def _table(service: Service, ids: Sequence[int]) -> str:
    source = CatalogueSource(service.catalogue)
    limits = Limits() if source.tagger.calibration is not None else Limits(k=3)
    items = [item for item in source.items(limits, ids=ids) if isinstance(item, ExportItem)]
    return table_of(items, CSV, run=source.tagger.fingerprint)


def _files(service: Service, ids: Sequence[int]) -> tuple[dict[str, str], list[str]]:
    """Return name in the zip file -> path, and a line for each photo that is left out."""
    files: dict[str, str] = {}
    problems = []
    for image_id in dict.fromkeys(ids):
        try:
            path = service.file_of(image_id)
        except HttpError as error:
            problems.append(error.detail)
            continue
        name = service.record_of(image_id).name
        if is_remote(path):
            problems.append(f"{name} is in an object store.")
            continue
        parts = [part for part in PurePosixPath(name.replace("\\", "/")).parts if part.strip("/.") and ":" not in part]
        entry = "/".join(parts) or f"{image_id}"
        files[entry if entry not in files else f"{image_id} {entry.replace('/', ' ')}"] = path
    return files, problems


def _zipped(files: dict[str, str], problems: Sequence[str]) -> Iterator[bytes]:
    """Yield the bytes of a zip file, photo by photo, so that it is nowhere whole."""
    sink, problems = _Sink(), [*problems]
    with zipfile.ZipFile(cast("IO[bytes]", sink), "w") as archive:
        for name, path in files.items():
            try:
                with open(path, "rb") as file:
                    entry = zipfile.ZipInfo.from_file(path, name, strict_timestamps=False)
                    with archive.open(entry, "w") as target:
                        while chunk := file.read(CHUNK_BYTES):
                            target.write(chunk)
                            yield sink.take()
            except OSError as error:
                problems.append(f"{name} can't be read: {error.strerror}.")
        if problems:
            archive.writestr("left out.txt", "\n".join([*problems, ""]))
    yield sink.take()


class _Sink:
    """A file that cannot seek, whose bytes are taken as they are written."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def write(self, content: bytes) -> int:
        """Keep bytes until they are taken."""
        self._parts.append(bytes(content))
        return len(content)

    def flush(self) -> None:
        """Do nothing: all bytes are in memory."""

    def take(self) -> bytes:
        """Return the bytes that were written since the last call."""
        content = b"".join(self._parts)
        self._parts.clear()
        return content
