"""Photos that look the same, side by side, to keep one of each group by hand or by a rule and hide the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, NamedTuple

from fastapi import APIRouter, Form, Request, Response

from visterm.core.errors import UserError
from visterm.core.wording import count_of
from visterm.library.catalogue import Catalogue
from visterm.library.duplicates import KEEPER_RULES, find_duplicates, keeper_by
from visterm.library.steps import Choice, keep_one_of_each
from visterm.store.images import ImageRecord
from visterm.web.api.images import undo_stored_step
from visterm.web.bodies import MEDIUM_BODY, FormFlag, FormNumber, FormText, allow_body
from visterm.web.pages.browse import folders_to_choose
from visterm.web.pages.library import latest_job
from visterm.web.pages.render import (
    PAGE_HEADERS,
    PageRoute,
    answer_form,
    file_size,
    is_for_script,
    local,
    moment,
    redirect,
    render,
)
from visterm.web.service import ServiceDep, in_threads

router = APIRouter(include_in_schema=False, route_class=PageRoute)

GROUPS_PER_PAGE = 12
COMPARED_PHOTOS = "SELECT count(*) FROM images WHERE state = 'here' AND phash IS NOT NULL"
MAX_GROUP_PHOTOS = 500  # Photos of one group in a form
KIND_LABELS = {"": "", "series": "a series of shots", "screenshots": "screenshots"}


class ComparedPhoto(NamedTuple):
    """A photo of a group of photos that look the same."""

    record: ImageRecord
    keep: bool
    facts: list[tuple[str, str, bool]]  # Name, value, and whether the photos of the group differ in it
    tags: list[tuple[str, bool]]  # Each with whether another photo of the group lacks it


Ids = Annotated[list[FormNumber], Form(max_length=MAX_GROUP_PHOTOS)]


@router.get("/duplicates")
@in_threads("browsing")
def duplicates_page(service: ServiceDep, start: int = 0, rule: str = "largest", folder: str = "") -> Response:
    """Show groups of photos that look the same, among those that the job "duplicates" has compared."""
    catalogue, start = service.catalogue, max(start, 0)
    groups, end = _groups(catalogue), start + GROUPS_PER_PAGE
    return render(
        "duplicates.html", rule=rule, rules=KEEPER_RULES, folder=folder, group_kinds=KIND_LABELS,
        groups=[(_photos(catalogue, images, kind, rule, folder), kind) for images, kind in groups[start:end]],
        n_groups=len(groups), n_copies=sum(not kind for _, kind in groups), start=start,
        more=local("/duplicates", start=end, rule=rule, folder=folder) if end < len(groups) else None,
        n_hidden=len(catalogue.stored.images.hidden()), n_compared=catalogue.stored.database.value(COMPARED_PHOTOS),
        folders=[name for name, _ in folders_to_choose(catalogue)], **latest_job(service, "duplicates", ended=False),
    )  # fmt: skip


@router.post("/duplicates/keep")
@allow_body(MEDIUM_BODY)
@in_threads("writing")
def keep(request: Request, service: ServiceDep, image: Ids, keep: FormNumber, merge: FormFlag = False) -> Response:
    """Keep one photo of a group, and hide the others."""
    others = [number for number in image if number != keep]
    step = keep_one_of_each(service.catalogue, [Choice(keep, others)], merge_tags=merge)
    (record,) = service.catalogue.stored.images.get_many([keep])
    message = f"{record.name.rpartition('/')[2]} kept, {count_of(len(others), 'photo')} hidden"
    group_id = min(image, default=keep)
    return answer_form(
        request, "_kept.html", "/duplicates", message=message, step=step, images=image, group_id=group_id
    )


@router.post("/duplicates/keep-all")
@in_threads("writing")
def keep_all(
    request: Request, service: ServiceDep, rule: FormText, folder: FormText = "", merge: FormFlag = False
) -> Response:
    """Keep one photo of each group of copies by a rule, and hide the others."""
    catalogue, choices = service.catalogue, []
    for images in (images for images, kind in _groups(catalogue) if not kind):
        keeper = keeper_by(rule, images, catalogue.stored.tags.held(image.id for image in images), folder)
        if keeper is not None:
            choices.append(Choice(keeper.id, [image.id for image in images if image.id != keeper.id]))
    if not choices:
        problem = "There is no group of copies with a photo to keep by this rule."
        raise UserError(problem, setting="rule", value=rule, advice="Choose another.")

    step = keep_one_of_each(catalogue, choices, merge_tags=merge)
    message = f"One photo of each of {count_of(len(step.images), 'group')} kept, the others hidden"
    return answer_form(request, "_kept.html", "/duplicates", message=message, step=step, images=[], group_id="all")


@router.post("/duplicates/undo")
@allow_body(MEDIUM_BODY)
@in_threads("writing")
def undo(request: Request, service: ServiceDep, step: FormNumber, image: Ids = []) -> Response:  # noqa: B006
    """Show hidden photos again, and remove their tags from the one that was kept."""
    undo_stored_step(service, step)
    if not is_for_script(request):
        return redirect("/duplicates")
    if not image:
        return render(
            "_kept.html", message="Undone. Reload the page to see the groups again", step=None, group_id="all"
        )
    images = service.catalogue.stored.images.get_many(image)
    photos = _photos(service.catalogue, images, "", "largest", "")
    message = "Undone: all photos of the group are back"
    return render("_group.html", photos=photos, kind="", number=None, kinds=KIND_LABELS, message=message)


@router.get("/duplicates/files.txt")
@in_threads("browsing")
def hidden_files(service: ServiceDep) -> Response:
    """Return the paths of the photos that were hidden, one per line, to delete them with another program."""
    paths = [image.path for image in service.catalogue.stored.images.hidden() if image.path is not None]
    text = "".join(f"{path}\n" for path in paths)
    headers = PAGE_HEADERS | {"content-disposition": 'attachment; filename="hidden photos.txt"'}
    return Response(text.encode("utf-8", "surrogateescape"), headers=headers, media_type="text/plain; charset=utf-8")


def _groups(catalogue: Catalogue) -> list[tuple[list[ImageRecord], str]]:
    """Return the groups of copies, best first, then the groups of similar photos, each with its kind."""

    def find() -> list[tuple[list[ImageRecord], str]]:
        copies, similar, _ = find_duplicates(catalogue.stored, hash_new=False)
        groups = [([group.keeper, *(copy.image for copy in group.copies)], "") for group in copies]
        return groups + [(group.images, group.kind) for group in similar]

    groups: list[tuple[list[ImageRecord], str]] = catalogue.stored.database.keep("duplicates", find)
    return groups


def _photos(
    catalogue: Catalogue, images: Sequence[ImageRecord], kind: str, rule: str, folder: str
) -> list[ComparedPhoto]:
    tags = catalogue.stored.tags.held(image.id for image in images)
    keeper = None if kind else keeper_by(rule, images, tags, folder)
    shared_tags = set.intersection(*(set(tags.get(image.id, ())) for image in images))
    rows = [
        {
            "Name": image.name.rpartition("/")[2], "Folder": image.name.rpartition("/")[0] or image.folder,
            "Pixels": f"{image.width} × {image.height}", "Size": file_size(image.n_bytes),
            "Taken": moment(image.taken) or "–",
        }
        for image in images
    ]  # fmt: skip
    differ = {name for name in rows[0] if len({row[name] for row in rows}) > 1}
    return [
        ComparedPhoto(
            image,
            keeper is not None and image.id == keeper.id,
            [(name, value, name in differ) for name, value in row.items()],
            [(tag, tag not in shared_tags) for tag in tags.get(image.id, ())],
        )
        for image, row in zip(images, rows, strict=True)
    ]
