"""The photos to index, with the source of their rows, and the indexed folders of a catalogue."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from visterm.core.errors import CorruptFileError, DataError, UserError
from visterm.core.remote import as_path, is_remote, real_path, start_of_paths
from visterm.core.tables import ENCODERS
from visterm.core.types import Skipped
from visterm.core.wording import count_of
from visterm.data.corpus import Corpus
from visterm.data.image_folders import NotRead, Unsearched, image_texts, is_there, is_video, unread_keywords_remark
from visterm.data.images import read_image
from visterm.data.sidecars import Sidecars, read_sidecar, union
from visterm.data.tag_files import KEYWORDS
from visterm.data.tag_formats.record import refused_remarks, usable_keywords
from visterm.encoders.contract import AnyEncoder
from visterm.features.folder import is_features
from visterm.features.training_rows import Photos, as_images, read_corpus, source_of_rows, with_tags
from visterm.library.files import full_paths, is_inside
from visterm.store.catalogue import StoredCatalogue
from visterm.store.database import as_text
from visterm.store.images import ImageFile

LEADS_OUT = "a link that leads out of the folder"

FOLDERS_KEY = "folders"
"""Key, in the table ``meta``, of a JSON object: indexed folder -> prefix of the names of its photos."""
TREE_KEY = "tree"  # Key of a JSON list: (child, parent) pairs of tags, from hierarchical keywords of the photos
ALIASES_KEY = "aliases"  # Key of a JSON list: (synonym, tag) pairs of the program that has the photos' tags


@dataclass(frozen=True, slots=True)
class ListedPhotos:
    """Images to index, with their names and tags in the same order."""

    items: Sequence[ImageFile]
    names: list[str]
    tags: list[list[str] | None]  # None: the photo keeps its tags
    source: Any  # An encoder or features, which compute the rows
    sha256_of: Callable[[Any], str] | None  # For features: image -> hash of the encoded content
    root: str | None  # Absolute path of the searched folder; None for single images
    names_folder: str | None = None  # Names are relative to this folder: `root`, or the image folder of features
    left_out: tuple[Skipped, ...] = ()
    """Links that lead out of the folder, and unreadable subfolders and tag files."""
    remarks: list[str] = field(default_factory=list)  # Notes for people about unread parts of the folder
    tags_from: str = ""  # Source of the tags: absolute path of a file, "xmp" or "auto"; empty: unknown
    tree: Sequence[tuple[str, str]] = ()  # (Child, parent) pairs of tags, see `Corpus.tree`
    aliases: Mapping[str, str] = field(default_factory=dict)  # Synonym -> tag, see `Corpus.aliases`
    may_be_gone: Callable[[str], bool] | None = None
    """Path -> whether its photo is gone if the file does not exist. None: True for photos in `root`."""
    known_paths: list[str | None] | None = None  # `paths`, once they have been computed
    not_read: NotRead | None = None  # Other files in `root`; None: not counted

    def paths(self) -> list[str | None]:
        """Return the `full_paths` of the images."""
        return full_paths(self.items) if self.known_paths is None else self.known_paths

    def without_links_outside(self) -> ListedPhotos:
        """Return the photos without links that lead out of the searched folder; these are added to `left_out`."""
        if self.root is None or is_remote(self.root):
            return self
        paths, start = self.paths(), start_of_paths(self.root)
        are_outside = [path is not None and not path.startswith(start) and not is_remote(path) for path in paths]
        if not any(are_outside):
            return replace(self, known_paths=paths)
        positions = [position for position, is_outside in enumerate(are_outside) if not is_outside]
        links = [Skipped(str(item), LEADS_OUT) for item, out in zip(self.items, are_outside, strict=True) if out]
        return replace(
            self,
            items=[self.items[position] for position in positions],
            names=[self.names[position] for position in positions],
            tags=[self.tags[position] for position in positions],
            left_out=(*self.left_out, *links),
            known_paths=[paths[position] for position in positions],
        )


def photos_of(
    encoder: AnyEncoder,
    images: Photos,
    tags: str | os.PathLike[str] | Sequence[Sequence[str]] | None = None,
    folder: str | os.PathLike[str] | None = None,
) -> ListedPhotos:
    """List the images to index, and the source of their rows.

    `encoder` is fitted. For the other parameters and the errors, see `Catalogue.index`.
    """
    check_has_photos(encoder)
    images = with_tags(images) if tags is None else images
    if folder is None and isinstance(images, str | os.PathLike) and as_path(images).is_dir():
        folder = images
    root = None if folder is None or is_features(folder) else real_path(folder)
    unsearched = Unsearched()
    if tags is None and not isinstance(images, Corpus) and not is_features(images):
        searched = root if folder is images and encoder.reads != "names" else None
        names = [] if searched is None else image_texts(searched, unsearched=unsearched, videos=True)
        items: Sequence[Any] = names
        if not names:
            names, items = as_images(images, unsearched=unsearched, videos=encoder.reads != "names")
        encoder.refuse_unknown(items, only_if_all=True)
        return ListedPhotos(
            _with_arrays(items), names, [None] * len(items), encoder, None, root, root,
            left_out=tuple(unsearched.closed), remarks=unsearched.remarks(),
            not_read=None if searched is None else unsearched.not_read(videos=True),
        )  # fmt: skip

    corpus = read_corpus(None, images, tags)
    source = source_of_rows(encoder, corpus)
    names, items = as_images(corpus if tags is not None or corpus is images else corpus.images)
    items = _with_arrays(items)
    remarks: list[str] = []
    tag_lists: list[list[str] | None] = [*corpus.tags] if tags is not None or corpus is images else [None] * len(items)
    if folder is not None and corpus.folder is not None:  # also index photos without tags
        names, items = [*names, *corpus.untagged], [*items, *(corpus.folder / name for name in corpus.untagged)]
        tag_lists += [None] * len(corpus.untagged)
        if root is not None and encoder.reads != "names":
            listed = {os.fspath(item) for item in items if not isinstance(item, np.ndarray)}
            videos = [path for path in image_texts(root, unsearched=unsearched, videos=True) if is_video(path)]
            videos = [path for path in videos if path not in listed]
            names, items = [*names, *videos], [*items, *videos]
            has_keywords = corpus.source in (KEYWORDS, "auto")
            tag_lists += _tags_of_videos(videos, remarks) if has_keywords else [None] * len(videos)

    names_folder = root if corpus.folder is None else real_path(corpus.folder)
    left_out = tuple({os.path.realpath(item.image): item for item in (*unsearched.closed, *corpus.skipped)}.values())
    if corpus.encoded is None:
        encoder.refuse_unknown(items, only_if_all=True)
    elif items and not any(map(is_there, items)):
        raise DataError(
            f"None of the {count_of(len(items), 'photo')} is where it was when its features were made (such as "
            f"{items[0]}), and a catalogue stores the paths of its photos. If they have moved, update the features: "
            "`visterm encode NEW_FOLDER -o FEATURES` keeps the rows of all photos with the same content."
        )
    sha256_of = None if corpus.encoded is None else corpus.encoded.sha256_of
    return ListedPhotos(
        items, names, tag_lists, source, sha256_of, root, names_folder, left_out, remarks, corpus.source, corpus.tree,
        corpus.aliases,
    )  # fmt: skip


def _with_arrays(items: Sequence[Any]) -> Sequence[ImageFile]:
    """Return images with Pillow images converted to arrays, because a catalogue compares their content.

    Local paths become texts, which take a quarter of the memory of `Path` objects. Raises DataError if an item is not
    an image.
    """
    if all(isinstance(item, str | os.PathLike) for item in items):
        return [item if is_remote(item) else os.fspath(item) for item in items]
    return [item if isinstance(item, str | os.PathLike) else read_image(item) for item in items]


def _tags_of_videos(videos: Sequence[str], remarks: list[str]) -> list[list[str] | None]:
    """Return people's tags from the XMP files of videos, None without a file; add remarks on damaged files."""
    sidecars, faults = Sidecars(), []
    refused: list[str] = []
    tags_of_videos: list[list[str] | None] = []
    for video in map(Path, videos):
        try:
            files = sidecars.of(video)
            tags = union(tag for file in files for tag in read_sidecar(file).people_tags)
            tags_of_videos.append(usable_keywords(tags, str(video), refused) if files else None)
        except DataError as error:
            tags_of_videos.append(None)
            faults.append(str(error))

    if faults:
        n_faults = count_of(len(faults), "video")
        remarks.append(f"Left out: {n_faults} whose keywords cannot be read, such as: {faults[0]}")
    remarks += [*refused_remarks(refused), *unread_keywords_remark(videos)]
    return tags_of_videos


def with_folder_names(stored: StoredCatalogue, photos: ListedPhotos) -> tuple[ListedPhotos, NDArray[np.bool_]]:
    """Name photos by their paths in indexed folders; also return whether each photo is in such a folder.

    For the first indexed folder, a name is the path relative to it. Names in further folders begin with the folder's
    own name, because folders often have files with the same name. Photos outside of all indexed folders keep their
    names. The folders are stored in `stored`; the caller must have its writer lock.
    """
    text = stored.database.value("SELECT value FROM meta WHERE key = ?", (FOLDERS_KEY,))
    try:
        stored_folders = {str(folder): str(prefix) for folder, prefix in json.loads(text or "{}").items()}
    except (ValueError, AttributeError) as error:
        raise CorruptFileError(
            f"{stored.database.path} is damaged: '{FOLDERS_KEY}' in its table meta is not valid JSON."
        ) from error
    folders = dict(stored_folders)
    recorded_folders = indexed_folders(stored, known_only=True) if not folders else []
    for folder in filter(None, [*recorded_folders, photos.names_folder]):
        _add_folder(stored, folders, folder)
    if folders != stored_folders:
        stored.database.write("INSERT OR REPLACE INTO meta VALUES (?, ?)", (FOLDERS_KEY, json.dumps(folders)))
    names, is_named, real_paths = list(photos.names), np.zeros(len(photos.names), np.bool_), photos.paths()
    starts = [(start_of_paths(folder), prefix) for folder, prefix in folders.items()]
    are_full = all(path is item for path, item in zip(real_paths, photos.items, strict=True))
    for position, path in enumerate(real_paths if are_full else full_paths(photos.items, follow_files=False)):
        for start, prefix in starts:
            if path is not None and path.startswith(start):
                names[position] = prefix + path.removeprefix(start).replace(os.sep, "/")
                is_named[position] = True
                break
    return replace(photos, names=names, known_paths=real_paths), is_named


def _add_folder(stored: StoredCatalogue, folders: dict[str, str], folder: str) -> None:
    """Add a folder to the indexed folders with a prefix, unless it is inside another indexed folder.

    A folder replaces the folders that it contains, and those whose photos are gone, and gets the prefix of one of them.
    """
    if folder in folders or any(is_inside(folder, other) for other in folders):
        return
    prefixes = [
        folders.pop(other) for other in list(folders) if is_inside(other, folder) or not _has_photos(stored, other)
    ]
    if prefixes or not folders:
        folders[folder] = prefixes[0] if prefixes else ""
        return
    parts = folder.strip(os.sep).split(os.sep)
    candidates = ("/".join(parts[-n:]) + "/" for n in range(1, len(parts) + 1))
    folders[folder] = next((name for name in candidates if name not in folders.values()), f"{folder}/")


def _has_photos(stored: StoredCatalogue, folder: str) -> bool:
    """Return whether a folder exists and has photos of the catalogue; object stores are assumed to exist."""
    if not is_remote(folder) and not os.path.isdir(folder):
        return False
    prefix = as_text(start_of_paths(folder))
    condition = "state = 'here' AND substr(path, 1, length(CAST(? AS TEXT))) = CAST(? AS TEXT)"
    return stored.database.value(f"SELECT 1 FROM images WHERE {condition} LIMIT 1", (prefix, prefix)) is not None


def remember_words(stored: StoredCatalogue, photos: ListedPhotos) -> None:
    """Store the tree and the synonyms of the photos' tags, for the first run that learns them."""
    for key, pairs in ((TREE_KEY, list(photos.tree)), (ALIASES_KEY, list(photos.aliases.items()))):
        if pairs:
            stored.database.write("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, json.dumps(pairs)))


def remembered_pairs(stored: StoredCatalogue, key: str) -> list[tuple[str, str]]:
    """Return the pairs that `remember_words` stored last under a key; an empty list if there are none."""
    text = stored.database.value("SELECT value FROM meta WHERE key = ?", (key,))
    return [(first, second) for first, second in json.loads(text or "[]")]


def check_has_photos(encoder: AnyEncoder) -> None:
    """Raise UserError if the encoder identifies images only by number, so that there are no photos to store."""
    if encoder.by_number or encoder.reads == "rows":
        raise UserError(
            f"A catalogue keeps photos, and this run has none (encoder {ENCODERS.name_of(encoder)}).",
            advice="Rank the tags of its images with `annotate`, or fit a run with an encoder that reads pixels, or "
            "features of photos (precomputed).",
        )


def check_not_connected(stored: StoredCatalogue) -> None:
    """Raise UserError if the catalogue is connected to another program's library, and so accepts no folders."""
    connection = stored.connected.get()
    if connection is not None:
        raise UserError(
            f"This catalogue is connected to {connection.title} at {connection.address}, and only has "
            "photos from that library.",
            advice="To update it: visterm sync CATALOGUE. For photos in a folder, make another catalogue: "
            "visterm index RUN IMAGES -o NEW_CATALOGUE",
        )


def indexed_folders(stored: StoredCatalogue, *, known_only: bool = False) -> list[str]:
    """Return the indexed folders; if no folder is recorded, the topmost folders with images, unless `known_only`."""
    folders = sorted({run["folder"] for run in stored.history.details_of("index") if run.get("folder")})
    if not folders and not known_only:
        statement = "SELECT DISTINCT folder FROM images WHERE state = 'here' AND path IS NOT NULL ORDER BY folder"
        folders = [folder for (folder,) in stored.database.rows(statement)]
    return [folder for folder in folders if not any(is_inside(folder, other) for other in folders)]


def stays_inside(stored: StoredCatalogue, path: str) -> bool:
    """Return whether a file of the catalogue is not a link, or a link that stays inside the indexed folders.

    Paths are stored with links resolved, so a path that is a link now was replaced after indexing.
    """
    if is_remote(path):
        return True
    real = os.path.realpath(path)
    return real == path or any(is_inside(real, os.path.realpath(folder)) for folder in indexed_folders(stored))
