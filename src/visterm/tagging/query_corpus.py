"""The images that queries are about, and the queries, named alike: from a folder, a features folder or a tag file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from visterm.core.errors import UserError
from visterm.core.tables import ENCODERS
from visterm.data.corpus import Corpus
from visterm.data.image_folders import images_in
from visterm.data.image_names import ImageNames
from visterm.data.query_files import QueryRow, read_query_file
from visterm.data.tag_formats.record import TagsFound, record
from visterm.encoders.contract import AnyEncoder
from visterm.features.contents import is_features
from visterm.features.training_rows import Photos, as_images, features_of


def query_lines(encoder: AnyEncoder, queries: str | os.PathLike[str] | Sequence[QueryRow]) -> list[QueryRow]:
    """Read queries from a file, or take them as they are.

    Raises
    ------
    UserError
        If the encoder knows images by number.
    DataError
        As `read_query_file` does.
    """
    if encoder.by_number:
        raise UserError(
            f"Queries are learned by what images look like, and the encoder '{ENCODERS.name_of(encoder)}' knows them "
            "by number only. Take an encoder that looks at pixels, or --encoder precomputed."
        )
    return read_query_file(queries) if isinstance(queries, str | os.PathLike) else [QueryRow(*row) for row in queries]


def query_corpus(
    encoder: AnyEncoder, images: Photos | None, queries: str | os.PathLike[str] | Sequence[QueryRow]
) -> tuple[Corpus, list[QueryRow]]:
    """Read the images that queries are about, without tags, and the queries.

    Parameters
    ----------
    encoder : AnyEncoder
    images : path, Corpus, sequence of paths or uint8 arrays, or None
        As `Tagger.fit` takes them: all images of a folder. None: those that the queries name.
    queries : path-like or sequence of QueryRow
        A query file, or its lines; they may name images as a tag file may.

    Returns
    -------
    tuple of Corpus and list of QueryRow
        The lines name images as the corpus does.

    Raises
    ------
    UserError
        If the encoder knows images by number, or needs a folder and there is none.
    DataError
        As `Corpus.read` and `read_query_file` do.
    """
    lines = query_lines(encoder, queries)
    if isinstance(images, Corpus):
        return images, lines
    if images is None:
        if encoder.reads != "names":
            raise UserError(
                f"IMAGES is missing: the encoder '{ENCODERS.name_of(encoder)}' looks at pixels. Give the folder of "
                "images that the queries name."
            )
        names = list(dict.fromkeys(row.image for row in lines))
        return Corpus.of(names, names, [[] for _ in names]), lines
    if not isinstance(images, str | os.PathLike):
        names, items = as_images(images)
        return Corpus.of(list(items), names, [[] for _ in names]), lines
    corpus = features_of(images).corpus() if is_features(images) else _untagged(Path(images))
    return corpus, _named_as_in(corpus, lines)


def _untagged(folder: Path) -> Corpus:
    paths = images_in(folder)
    names = [path.relative_to(folder).as_posix() for path in paths]
    return Corpus.joined(folder, paths, TagsFound([record(name, [], None) for name in names], []))


def _named_as_in(corpus: Corpus, lines: Sequence[QueryRow]) -> list[QueryRow]:
    """Call the images of queries as the corpus does, where a name means one of its files."""
    paths = [Path(name) for name in corpus.names]
    given = list(dict.fromkeys(row.image for row in lines))
    meant = dict(zip(given, ImageNames(Path(), paths).match(given), strict=True))
    return [row if (match := meant[row.image]) is None else row._replace(image=match.path.as_posix()) for row in lines]
