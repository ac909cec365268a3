"""Reading tags in all supported forms, and detecting which form a folder uses."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Unpack

from visterm.core.errors import DataError, NoTagsError, UserError
from visterm.core.remote import as_path, is_remote
from visterm.core.types import Place
from visterm.core.vocabulary import tag_fault, tag_key
from visterm.core.wording import count_of
from visterm.data.image_folders import find_images, plain_name, unread_keywords_remark
from visterm.data.program_stores import is_store, read_store, store_in, store_name
from visterm.data.sidecars import Sidecars
from visterm.data.tag_formats.record import (
    STANDARD_SPLITS,
    TagRecord,
    TagsFound,
    merged_by_image,
    record,
    refused_remarks,
    separator_pattern,
    split_name,
    usable_keywords,
)
from visterm.data.tag_formats.tables import NoColumnError, TableOptions, TagSource, check_in_file, read_table
from visterm.data.tag_formats.texts import read_sidecars, read_text_folder, sidecar, skipped_for_permission
from visterm.data.tag_tree import suffixes, tree_of_places
from visterm.data.xmp.keywords import Keywords

# Names of the tables in Hugging Face's image folders, in order of preference
METADATA_FILES = ("metadata.jsonl", "metadata.csv")

# What "auto" looks for in addition to tables, for a message
OTHER_FORMS_TEXT = (
    "; a catalogue of Lightroom or digiKam; a .txt beside each image (1.txt for 1.jpg); an .xmp beside an image "
    "(1.jpg.xmp or 1.xmp); one folder per tag (beach/1.jpg, but no dates: 2019 Paris/1.jpg); keywords in the images"
)

_OTHER_FILE_ADVICE = "If they are in another file, call it metadata.csv and put it there, or name it: `tags`."
# Names of folders in which photos are stored by date or by cameras, such as 2019, 2019-07-14 Harz, DCIM and 100CANON
_STORAGE_FOLDER = re.compile(r"(19|20)\d\d([01]\d([0-3]\d)?)?(?![^\W_])|(DCIM|\d{3}(?=\d*[A-Z_])[A-Z0-9_]{5})$")
_IN_STORAGE_FOLDER = re.compile(rf"{_STORAGE_FOLDER.pattern}|\d{{1,4}}(?![^\W_])")  # Also 07 and 07-14 Harz
N_SAMPLED = 200  # Number of images of which "auto" reads the keywords, to see whether people use them
KEYWORDS = "xmp"  # Source of tags: the keywords in XMP files next to the images and in the images


def find_tags(
    source: TagSource, images: Place, files: Sequence[Path] | None = None, **options: Unpack[TableOptions]
) -> TagsFound:
    """Read the tags of a folder of images from `source`; `options` are those of `TableOptions`.

    `files` are the images in the folder, if they have been listed already.

    The source is a CSV, TSV or JSON-lines file, a DataFrame or a list of dicts; a folder with a ``.txt`` for each
    image; ``"xmp"`` for the keywords in XMP files next to images and in the images; ``"PROGRAM:PATH"`` for a store of
    another program (`visterm.data.program_stores`); or ``"auto"`` for the first form found in the image folder:
    ``metadata.jsonl`` or ``metadata.csv`` (or a table per sub-folder, with names relative to it; a sub-folder "train"
    or "test" is a split), a catalogue of Lightroom or digiKam, a ``.txt`` next to each image, an ``.xmp`` next to an
    image or keywords in a tenth of the images (then all keywords are read), one folder per tag, keywords in the images.

    Returns a record for each image that the source names, in the order of the source. A tag written ``-beach`` is a
    negative: no beach. Raises TagFileError if the source has no tags, or they cannot be parsed.
    """
    if (separator := options.get("separator")) is not None:
        separator_pattern(separator)  # raises UserError if the separator is invalid
    is_name = isinstance(source, str | os.PathLike)
    folder = as_path(images)
    if is_name and is_remote(folder):
        check_in_file(source, f"images in an object store ({folder})")
    if is_store(source):
        return read_store(store_name(source), folder, find_images(folder) if files is None else files)
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
            raise NoTagsError(problem, setting="tags", value=source, advice=_OTHER_FILE_ADVICE)
        return keywords

    return _found_tags(folder, files, columns, **options)


def _found_tags(
    folder: Path, files: Sequence[Path], columns: Mapping[str, object], **options: Unpack[TableOptions]
) -> TagsFound:
    """Return the first form of tags that is found in a folder; with `columns`, only tables count."""
    tables = _metadata_tags(folder, options)
    tags = tables if tables.records else None
    if tags is None and not columns:
        store = store_in(folder)
        tags = read_store(store, folder, files) if store else _tags_of_images(folder, files, options.get("separator"))
    if tags is not None:
        return tags if tags is tables else tags._replace(remarks=[*tags.remarks, *tables.remarks])
    also_searched = "" if columns else OTHER_FORMS_TEXT
    problem = f"No tags were found in {folder}. Looked for: a table ({' or '.join(METADATA_FILES)}){also_searched}."
    problem = " ".join([problem, *tables.remarks])
    raise NoTagsError(problem, setting="tags", value="auto", advice=_OTHER_FILE_ADVICE)


def read_folder_tags(folder: Path, images: Sequence[Path]) -> TagsFound:
    """Read the names of the folders around each image as its tags (``beach/1.jpg``).

    Nested folders are several tags; images directly in `folder` have no record. A folder around all others is no tag,
    nor are dates (``2019``, ``2019-07-14 Harz``, and in these folders ``07``) and cameras' folders (``DCIM``,
    ``100CANON``); but numbers are tags if more of them are no years or dates. If all images are in folders named train,
    valid(ation), val or test, these names are splits, not tags. A remark counts the folders.
    """
    paths = [image.relative_to(folder) for image in images]
    parents = {path.parent for path in paths}
    outer = Path(os.path.commonpath(parents or [folder]))
    around = () if outer in parents else outer.parts
    n = len(around) - any(split_name(part) in STANDARD_SPLITS for part in around[-1:])  # the level of a split
    has_splits = all(len(p.parts) > n + 1 and split_name(p.parts[n]) in STANDARD_SPLITS for p in paths)
    numbers = {name for parent in parents for name in _folder_tags(parent.parts) if name.isdecimal()}
    dates = {name for parent in parents for name in parent.parts if name.isdecimal() and _STORAGE_FOLDER.match(name)}
    tags_of = partial(_folder_tags, of_numbers=len(numbers) > len(dates))
    n_around, records = len(tags_of(around)), []
    for path in paths:
        split = split_name(path.parts[n]) if has_splits else None
        tags = tags_of(path.parts[n + 1 : -1]) if has_splits else tags_of(path.parts[:-1])[n_around:]
        if tags:
            records.append(record(name := path.as_posix(), tags, split, source=f"the folder of {name}"))

    n_folders = len({os.path.dirname(row.image) for row in records})
    remarks = [f"Tags: one folder per tag ({count_of(n_folders, 'folder')})."]
    return TagsFound(records, remarks, "in no tag's folder, so without a tag")


def _folder_tags(names: Sequence[str], *, of_numbers: bool = False) -> list[str]:
    """Return the tags among the names of nested folders; with `of_numbers`, all numbers are tags."""
    tags, no_tag = [], _STORAGE_FOLDER
    for name in names:
        if (of_numbers and name.isdecimal()) or not no_tag.match(name):
            tags.append(name)
        else:
            no_tag = _IN_STORAGE_FOLDER
    return tags


def read_keyword_tags(folder: Path, images: Sequence[Path]) -> TagsFound:
    """Read the keywords in XMP files next to images and in the images, from all fields that programs use.

    Fields with paths (``animal|dog``) make the tree of the tags; tags are named as in `tree_of_places`. Predictions
    that visterm wrote are left out, so no run learns from predictions. Files that cannot be parsed, and keywords that
    are not valid tags, are counted in remarks instead of raising an error.
    """
    sidecars = Sidecars()
    tagged_images: list[tuple[Path, Keywords]] = []
    errors, skipped, n_predicted = [], [], 0
    invalid_keywords: list[str] = []
    for image in images:
        try:
            keywords = sidecars.keywords(image)
            paths = tuple(path for path in keywords.paths if all(tag_fault(name) is None for name in suffixes(path)))
        except DataError as error:
            errors.append(str(error))
            cause = error.__cause__
            if isinstance(cause, PermissionError) and os.fspath(cause.filename) != os.fspath(image):
                skipped.append(skipped_for_permission(error))
            continue
        n_predicted += len(keywords.tags) - len(keywords.people_tags)
        keywords = keywords._replace(tags=usable_keywords(keywords.people_tags, str(image), invalid_keywords))
        if keywords.people_tags:
            tagged_images.append((image, keywords._replace(paths=paths)))

    tree, names = tree_of_places(path for _, keywords in tagged_images for path in keywords.paths)
    records = [
        record(image.relative_to(folder).as_posix(), _names_in_tree(keywords, names), None, source=str(image))
        for image, keywords in tagged_images
    ]
    remarks = ["Tags: keywords in XMP files beside the images and in these."]
    if n_predicted:
        remarks.append(f"Left out: {count_of(n_predicted, 'tag')} that visterm wrote there as a prediction.")
    if errors:
        n_images = count_of(len(errors), "image")
        remarks.append(f"Left out: {n_images} whose keywords cannot be read, such as: {errors[0]}")
    remarks += [*refused_remarks(invalid_keywords), *unread_keywords_remark(images)]
    return TagsFound(records, remarks, "without keywords", tree.pairs, skipped)


def _names_in_tree(keywords: Keywords, names: Mapping[tuple[str, ...], str]) -> Iterator[str]:
    """Yield the tags that people gave an image, by their names in the tree, also those that are only parents."""
    paths_to: dict[str, list[tuple[str, ...]]] = {}
    for path in keywords.paths:
        for n in range(1, len(path) + 1):
            paths_to.setdefault(tag_key(path[n - 1]), []).append(path[:n])
    leaf_keys = {tag_key(path[-1]) for path in keywords.paths}
    for tag in keywords.people_tags:
        paths = paths_to.get(tag_key(tag), [])
        exact_paths = [path for path in paths if path in keywords.paths] if tag_key(tag) in leaf_keys else paths
        yield from (names[path] for path in exact_paths) if exact_paths else (tag,)


def _metadata_tags(folder: Path, options: TableOptions) -> TagsFound:
    """Read the table of the folder itself, or else the tables of its sub-folders; without a table, no records.

    Names in a sub-folder's table are relative to the sub-folder, which may also be a split. A sub-folder's table
    without the columns of tags is another program's; a remark names it.
    """
    tables = [path for name in METADATA_FILES if (path := folder / name).is_file()][:1]
    if not tables:
        paths = (path for name in METADATA_FILES[::-1] for path in folder.rglob(name))
        visible_paths = [p for p in paths if not any(part.startswith(".") for part in p.relative_to(folder).parts)]
        table_in_folder = {path.parent: path for path in visible_paths}  # a later one replaces an earlier one
        tables = [table_in_folder[parent] for parent in sorted(table_in_folder)]

    rows: list[TagRecord] = []
    remarks: list[str] = []
    for path in tables:
        try:
            table = read_table(path, **options)
        except NoColumnError:
            if path.parent == folder:
                raise
            remarks.append(f"Not read: {path}, which has no column of file names, or none of tags.")
            continue
        parent = path.parent.relative_to(folder)
        folder_split = split_name(parent.parts[0]) if parent.parts else None
        for row in table:
            name = row.image if os.path.lexists(path.parent / row.image) else plain_name(row.image)
            split = row.split or (folder_split if folder_split in STANDARD_SPLITS else None)
            rows.append(row._replace(image=(parent / name).as_posix(), split=split))

    names = " and ".join(sorted({path.name for path in tables}))
    location = "" if folder / names in tables else f" in {count_of(len(tables) - len(remarks), 'sub-folder')}"
    return TagsFound(merged_by_image(rows), [f"Tags: {names}{location}.", *remarks] if rows else remarks)


def _tags_of_images(folder: Path, images: Sequence[Path], separator: str | None) -> TagsFound | None:
    """Read the texts next to images, or else keywords, or else folder names; None if the images have no tags.

    Texts don't count if more images have keywords; few images with keywords, such as stock photos in a folder per tag,
    don't count if there are names of folders. A remark names the tags that are not read.
    """
    sidecars, sample = Sidecars(), images[:: max(1, len(images) // N_SAMPLED)]
    n_texts = sum(sidecar(image) is not None for image in images)
    n_keywords = len(read_keyword_tags(folder, [image for image in sample if sidecar(image) is None]).records)
    has_texts = n_texts > 0 and n_texts * len(sample) >= n_keywords * len(images)
    has_few_keywords = 10 * n_keywords < len(sample) and not any(map(sidecars.of, images))

    others = read_sidecars(folder, images, separator) if has_texts else read_folder_tags(folder, images)
    if has_texts or (has_few_keywords and others.records):
        unread = "keywords in photos without a .txt" if has_texts else "keywords in a few photos"
        remark = f"Not read: {unread}, or in their XMP files: choose the tags 'xmp' to read these."
        return others._replace(remarks=[*others.remarks, remark]) if n_keywords else others
    tags = read_keyword_tags(folder, images)
    if not tags.records:
        return others if others.records else None
    remark = f"Not read: a .txt beside {count_of(n_texts, 'photo')}: choose the tags '{folder}' to read these instead."
    return tags._replace(remarks=[*tags.remarks, remark]) if n_texts else tags
