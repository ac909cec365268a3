"""Reading tags in any of the forms that people keep them in, and finding out which one it is."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Unpack

from visterm.core.errors import DataError, NoTagsError, UserError
from visterm.core.remote import as_path, is_remote
from visterm.core.vocabulary import tag_fault, tag_key
from visterm.core.wording import REPLACEMENT, count_of, printable
from visterm.data.image_folders import find_images, plain_name, unread_inside
from visterm.data.sidecars import Sidecars
from visterm.data.tag_formats.record import (
    STANDARD,
    TagsFound,
    merged_by_image,
    record,
    refused_remarks,
    separator_pattern,
    split_name,
    usable_keywords,
)
from visterm.data.tag_formats.tables import TableOptions, TagSource, check_in_file, read_table
from visterm.data.tag_formats.texts import may_not_be_read, read_sidecars, read_text_folder, sidecar
from visterm.data.tag_tree import suffixes, tree_of_places
from visterm.data.xmp.keywords import Keywords

# What Hugging Face's image folders call their tables, in the order of preference
METADATA = ("metadata.jsonl", "metadata.csv")

# What "auto" looks for beside tables, for people
WITHOUT_COLUMNS = (
    "; a .txt beside each image (1.txt for 1.jpg); an .xmp beside an image (1.jpg.xmp or 1.xmp); one folder per tag "
    "(beach/1.jpg); keywords in the images"
)

_ELSEWHERE = "If they are in another file, name it: `tags`."
KEYWORDS = "xmp"  # In place of a file of tags: the keywords in XMP files beside the images and in the images


def find_tags(
    source: TagSource,
    images: str | os.PathLike[str],
    files: Sequence[Path] | None = None,
    **options: Unpack[TableOptions],
) -> TagsFound:
    """Read the tags of a folder of images, and say where they were found; `options` are those of `TableOptions`.

    `files` are the images in the folder, where they are listed already.

    The source is a CSV, TSV or JSON-lines file, a DataFrame or a list of dicts; a folder that has a ``.txt`` for each
    image; ``"xmp"`` for the keywords in XMP files beside the images and in the images; or ``"auto"`` to take the first
    of these that the image folder has: ``metadata.jsonl`` or ``metadata.csv`` (or one in each sub-folder: names begin
    there, and a sub-folder "train" or "test" is a split), a ``.txt`` beside each image, an ``.xmp`` beside an image
    (then all keywords), a folder a tag, keywords in the images.

    Returns a record for each image named, in the order of the file. A tag written ``-beach`` is a negative: no beach.
    Raises TagFileError if nothing of the kind is there, or it cannot be understood.
    """
    if (separator := options.get("separator")) is not None:
        separator_pattern(separator)  # refuses one that can't be used
    is_name = isinstance(source, str | os.PathLike)
    folder = as_path(images)
    if is_name and is_remote(folder):
        check_in_file(source, f"images in an object store ({folder})")
    is_folder = is_name and source not in (KEYWORDS, "auto") and not is_remote(source) and Path(source).is_dir()
    if not is_name or not (is_folder or source in (KEYWORDS, "auto")):
        return TagsFound(merged_by_image(read_table(source, **options)), [])
    columns = {name: value for name, value in options.items() if name != "separator" and value is not None}
    for name, value in columns.items() if source != "auto" else ():
        problem = f"{source} is a folder of .txt files, which" if is_folder else "Keywords of XMP files and of images"
        problem += f" have no columns, and {name} is '{value}'."
        raise UserError(problem, setting="tags", value=source, advice="Leave the names of columns out of `tag_rules`.")
    files = find_images(folder) if files is None else files

    if is_folder:
        return read_text_folder(Path(source), folder, files, separator)
    if source == KEYWORDS:
        keywords = read_keyword_tags(folder, files)
        if not keywords.records:
            remarks = "".join(f" {remark}" for remark in keywords.remarks[1:])
            problem = f"No image in {folder} has keywords of a person, in an XMP file beside it or in itself.{remarks}"
            raise NoTagsError(problem, setting="tags", value=source, advice=_ELSEWHERE)
        return keywords

    tags = _metadata_tags(folder, options)
    if tags is None and not columns:
        tags = _tags_of_images(folder, files, separator)
    if tags is not None:
        return tags
    others = "" if columns else WITHOUT_COLUMNS
    problem = f"No tags were found in {folder}. Looked for: a table ({' or '.join(METADATA)}){others}."
    raise NoTagsError(problem, setting="tags", value=source, advice=_ELSEWHERE)


def read_folder_tags(folder: Path, images: Sequence[Path]) -> TagsFound:
    """Read the names of the folders around each image as its tags (``beach/1.jpg``).

    Nested folders are several tags; images directly in the folder have no record. If all images are in folders named
    train, valid(ation), val or test, those are splits and not tags. A remark counts the folders, and those whose names
    cannot be read.
    """
    inside = [image.relative_to(folder) for image in images]
    has_splits = bool(inside) and all(len(p.parts) > 1 and split_name(p.parts[0]) in STANDARD for p in inside)
    records, folders = [], set[str]()
    for path in inside:
        name, parts = path.as_posix(), path.parts[:-1]
        split, tags = (split_name(parts[0]), parts[1:]) if has_splits else (None, parts)
        if tags:
            records.append(record(name, tags, split, place=f"the folder of {name}"))
            folders.add(path.parent.as_posix())

    remarks = [f"Tags: one folder per tag ({count_of(len(folders), 'folder')})."]
    garbled = sorted(name for name in folders if any("\ud800" <= c <= "\udfff" for c in name))  # bytes, to Python
    if garbled:
        remarks.append(
            f"The names of {count_of(len(garbled), 'folder')} (such as '{printable(garbled[0])}') are not UTF-8; "
            f"their tags have {REPLACEMENT} in place of what cannot be read."
        )
    return TagsFound(records, remarks, "in no tag's folder, so without a tag")


def read_keyword_tags(folder: Path, images: Sequence[Path]) -> TagsFound:
    """Read the keywords in XMP files beside images and in the images, of all fields that programs use.

    Where fields say what lies above a tag (``animal|dog``), that is the tree of the tags; tags are called as
    `tree_of_places` does. Predictions that visterm wrote there are left out: no run learns from what another run
    guessed. Files that cannot be understood are a remark, and no error; so are keywords that cannot be tags, which take
    no other of the photo with them.
    """
    sidecars = Sidecars()
    tagged: list[tuple[Path, Keywords]] = []
    bad, skipped, n_predicted = [], [], 0
    refused: list[str] = []
    for image in images:
        try:
            keywords = sidecars.keywords(image)
            paths = tuple(path for path in keywords.paths if all(tag_fault(name) is None for name in suffixes(path)))
        except DataError as error:
            bad.append(str(error))
            cause = error.__cause__
            if isinstance(cause, PermissionError) and os.fspath(cause.filename) != os.fspath(image):
                skipped.append(may_not_be_read(error))
            continue
        n_predicted += len(keywords.tags) - len(keywords.of_people)
        keywords = keywords._replace(tags=usable_keywords(keywords.of_people, str(image), refused))
        if keywords.of_people:
            tagged.append((image, keywords._replace(paths=paths)))

    tree, names = tree_of_places(path for _, keywords in tagged for path in keywords.paths)
    records = [
        record(image.relative_to(folder).as_posix(), _called(keywords, names), None, place=str(image))
        for image, keywords in tagged
    ]
    remarks = ["Tags: keywords in XMP files beside the images and in these."]
    if n_predicted:
        remarks.append(f"Left out: {count_of(n_predicted, 'tag')} that visterm wrote there as a prediction.")
    if bad:
        remarks.append(f"Left out: {count_of(len(bad), 'image')} whose keywords cannot be read, such as: {bad[0]}")
    remarks += [*refused_remarks(refused), *unread_inside(images)]
    return TagsFound(records, remarks, "without keywords", tree.pairs, skipped)


def _called(keywords: Keywords, names: Mapping[tuple[str, ...], str]) -> Iterator[str]:
    """Yield the tags that people gave an image, by their names in the tree, parents included."""
    paths_to: dict[str, list[tuple[str, ...]]] = {}
    for path in keywords.paths:
        for n in range(1, len(path) + 1):
            paths_to.setdefault(tag_key(path[n - 1]), []).append(path[:n])
    ends = {tag_key(path[-1]) for path in keywords.paths}
    for tag in keywords.of_people:
        paths = paths_to.get(tag_key(tag), [])
        chosen = [each for each in paths if each in keywords.paths] if tag_key(tag) in ends else paths
        yield from (names[each] for each in chosen) if chosen else (tag,)


def _metadata_tags(folder: Path, options: TableOptions) -> TagsFound | None:
    """Read the table of the folder itself, or else those of its sub-folders; None where there is none.

    Rows of a sub-folder get its path before their names, and its split.
    """
    tables = [path for name in METADATA if (path := folder / name).is_file()][:1]
    if not tables:
        below = (path for name in METADATA for path in sorted(folder.rglob(name)))
        visible = [path for path in below if not any(part.startswith(".") for part in path.relative_to(folder).parts)]
        first = {path.parent: path for path in reversed(visible)}
        tables = [first[parent] for parent in sorted(first)]
    if not tables:
        return None

    rows = []
    for path in tables:
        parent = path.parent.relative_to(folder)
        top = split_name(parent.parts[0]) if parent.parts else None
        for row in read_table(path, **options):
            name = row.image if os.path.lexists(path.parent / row.image) else plain_name(row.image)
            split = row.split or (top if top in STANDARD else None)
            rows.append(row._replace(image=(parent / name).as_posix(), split=split))

    names = {path.name for path in tables}
    where = "" if tables[0].parent == folder else f" in {count_of(len(tables), 'sub-folder')}"
    beside = {path.with_name(name) for path in tables for name in METADATA if name != path.name}
    unread = sorted({path.name for path in beside if path.is_file()})
    notes = "".join(f" ({name} lies there too and is not read)" for name in unread)
    return TagsFound(merged_by_image(rows), [f"Tags: {' and '.join(sorted(names))}{where}{notes}."])


def _tags_of_images(folder: Path, images: Sequence[Path], separator: str | None) -> TagsFound | None:
    """Read the texts beside images, or else keywords, or else folders; None where there are none of these."""
    if any(sidecar(image) for image in images):
        return read_sidecars(folder, images, separator)
    sidecars = Sidecars()
    keywords = read_keyword_tags(folder, images) if any(sidecars.of(image) for image in images) else None
    if keywords is None or not keywords.records:
        of_folders = read_folder_tags(folder, images)
        if of_folders.records:
            return of_folders
        keywords = keywords or read_keyword_tags(folder, images)
    return keywords if keywords.records else None
