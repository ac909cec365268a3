"""Converting the input of users (folders, files, arrays, tag lists) to the rows that a model learns from."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeGuard, Unpack

import numpy as np
import scipy.sparse as sp
from PIL import Image

from visterm.core.checks import check_tags, identity_rows
from visterm.core.errors import DataError, EncoderMismatchError, NoneReadableError, ShapeError, TagFileError, UserError
from visterm.core.progress import SILENT, Progress
from visterm.core.tables import ENCODERS
from visterm.core.types import Doubles, Matrix, Skipped
from visterm.core.vocabulary import Vocabulary
from visterm.core.wording import count_of
from visterm.data.corpus import Corpus
from visterm.data.frames import FrameTable, as_table, listed, split_rows
from visterm.data.image_folders import Unsearched, find_images, no_images_message
from visterm.data.images import image_name
from visterm.data.tag_formats import tables
from visterm.encoders.contract import AnyEncoder, name_of
from visterm.features.folder import Contents, is_features
from visterm.features.stored import Features

if TYPE_CHECKING:
    from visterm.models.base import SideKnowledge

Photos: TypeAlias = "str | os.PathLike[str] | Corpus | Sequence[Any] | Any"
"""A file, a folder, photos (paths or pixels in a sequence, a Series or a DataFrame), or a matrix of features."""

WIDTH_SAMPLE = 8  # Number of images to encode to find out the width of rows
TRAIN_SPLIT, VALID_SPLIT = "train", "valid"  # The splits for training, and for early stopping
NONE_HELD_OUT = "Fewer than 50 validation images: early stopping is off, all epochs were run."


class TrainingRows(NamedTuple):
    """Features and tags for training, and the held-out rows of the corpus for early stopping."""

    vocabulary: Vocabulary  # The tags of the columns of `Y`
    # matrices, shape (n_images, n_features) and (n_images, n_tags): the training rows
    X: Matrix
    Y: sp.csr_array
    valid: tuple[Matrix, sp.csr_array] | None  # Rows of the split "valid"; None if they have no known tags
    skipped: list[Skipped]  # Images that could not be read, or that are unknown to the encoder
    by_number: bool = False  # Whether images are known only by number: `X` is the identity, including `valid`
    names: Sequence[str] = ()  # Names of the training images, then of the held-out images
    side: SideKnowledge | None = None  # Additional knowledge about the columns of `Y` and `X`


def training_rows(
    encoder: AnyEncoder,
    corpus: Corpus,
    *,
    min_count: int = 1,
    aliases: Mapping[str, str] | None = None,
    words: Iterable[str] = (),
    text_width: int | None = None,
    progress: Progress = SILENT,
) -> TrainingRows:
    """Collect the vocabulary of the training rows, fit the encoder on their images, and encode all images.

    In a corpus with splits, the training rows are the split "train", and "valid" is held out; without splits, all rows
    are used. An encoder that has already encoded the images is not fitted again. `aliases` maps spellings to tags;
    `words` are additional tags, even if no image has them. `text_width` is the width of the word vectors, which image
    rows must share. Raises DataError if no image or no tag is left for training, or an encoder with stored rows has
    none; EncoderMismatchError if the images were encoded by another encoder; ShapeError if rows do not have
    `text_width` features, which is checked before all images are encoded.
    """
    train = corpus.select(TRAIN_SPLIT) if any(corpus.splits) else corpus
    held_out = corpus.subset([i for i, split in enumerate(corpus.splits) if split == VALID_SPLIT])
    unknown: list[Skipped] = []
    if _has_stored_rows(encoder):
        encoder.refuse_unknown(train.images, only_if_all=True)
        train, unknown = known_part(encoder, train)
        held_out, unknown_held_out = known_part(encoder, held_out)
        unknown += unknown_held_out
    vocabulary = Vocabulary.from_lists(train.tags, min_count=min_count, aliases=aliases).with_words(words)
    if corpus.tag_order:
        ordered = (vocabulary.get(tag) for tag in (*corpus.tag_order, *vocabulary))
        vocabulary = vocabulary.subset(dict.fromkeys(column for column in ordered if column is not None))

    if len(vocabulary) == 0:
        raise too_rare(min_count, len(train))
    if corpus.encoded is None:
        try:
            encoder.fit(train.images, skip_unreadable=True, progress=progress)
        except NoneReadableError as error:
            positions = {str(image): position for position, image in enumerate(train.images)}
            in_order = sorted(error.skipped, key=lambda item: positions.get(item.image, 0))  # may be in any order
            raise NoneReadableError(in_order) from error

    if text_width is not None:
        _check_width(encoder, train, text_width)

    X, Y, skipped = encode_corpus(encoder, train, vocabulary, progress)
    if skipped and X.shape[0] == 0:
        raise NoneReadableError(skipped)
    X_valid, Y_valid, skipped_valid = encode_corpus(encoder, held_out, vocabulary, progress)
    if encoder.by_number:
        Y = check_tags(X.T @ Y, X.shape[1])
        X = identity_rows(X.shape[1])
    valid = (X_valid, Y_valid) if Y_valid.nnz > 0 and Y_valid.max() > 0 else None
    left_out = [*corpus.skipped, *unknown, *skipped, *skipped_valid]
    return TrainingRows(vocabulary, X, Y, valid, left_out, encoder.by_number, [*train.names, *held_out.names])


def too_rare(min_count: int, n_photos: int) -> DataError:
    """Return the error for a corpus in which no tag is on enough photos."""
    return DataError(
        f"No tag is on {min_count} or more of the {count_of(n_photos, 'training photo')}.",
        setting="min_count", value=min_count,
        advice="Lower `min_count`, or check the tags: one that begins with '-' means 'not'.",
    )  # fmt: skip


def _check_width(encoder: AnyEncoder, corpus: Corpus, text_width: int) -> None:
    """Check that word vectors are as wide as rows; encode a few images if the encoder does not know its width."""
    width = encoder.width
    if width is None:
        rows, kept, _ = source_of_rows(encoder, corpus).encode(corpus.images[:WIDTH_SAMPLE], progress=SILENT)
        width = rows.shape[1] if len(kept) else text_width
    if width != text_width and not encoder.by_number:
        raise ShapeError(
            f"The word vectors have {text_width:,} numbers, and the rows of images {width:,}.",
            setting="word_vectors", value=text_width,
            advice="Take vectors of the text tower of the images' network, or another `model`: sampled_tagger.",
        )  # fmt: skip


def unused_rows_remark(splits: Iterable[str | None] | Mapping[str | None, int]) -> list[str]:
    """Return a remark with the number of rows that `training_rows` ignores; empty if it uses all rows.

    `splits` has the split of each row, or the number of rows of each split.
    """
    counts = Counter(splits)
    n = sum(count for split, count in counts.items() if split not in (TRAIN_SPLIT, VALID_SPLIT))
    if n == 0 or not any(counts):
        return []
    return [f"Not learned from: {count_of(n, 'row')} outside the splits '{TRAIN_SPLIT}' and '{VALID_SPLIT}'."]


def encode_corpus(
    encoder: AnyEncoder, corpus: Corpus, vocabulary: Vocabulary, progress: Progress = SILENT
) -> tuple[Matrix, sp.csr_array, list[Skipped]]:
    """Return the features and tags of the readable images of a corpus, and the other images with reasons.

    Raises EncoderMismatchError if the images have stored rows of another encoder.
    """
    if len(corpus) == 0:
        return np.empty((0, 0), np.float32), sp.csr_array((0, len(vocabulary)), dtype=np.float32), []
    X, kept, skipped = source_of_rows(encoder, corpus).encode(corpus.images, progress=progress)
    return X, vocabulary.encode([corpus.tags[i] for i in kept], [corpus.negatives[i] for i in kept]), skipped


def source_of_rows(encoder: AnyEncoder, corpus: Corpus) -> AnyEncoder | Features:
    """Return the source of rows for a corpus: the encoder, or the stored rows if the images were encoded before.

    Raises EncoderMismatchError if the stored rows are of another encoder.
    """
    if corpus.encoded is None:
        return encoder
    encoded: Features = corpus.encoded
    check_fingerprint(encoder, encoded.contents)
    return encoded


def check_fingerprint(encoder: AnyEncoder, stored: Contents) -> None:
    """Raise `EncoderMismatchError` if stored rows were made by another encoder."""
    if stored.fingerprint != encoder.fingerprint:
        raise EncoderMismatchError(
            f"The features were made by '{stored.encoder}' with the fingerprint {stored.fingerprint}, and "
            f"'{ENCODERS.name_of(encoder)}' of this run has {encoder.fingerprint}: their rows do not go together. "
            "Encode the photos as the run does: visterm encode IMAGES --encoder RUN -o FEATURES"
        )


def known_part(encoder: AnyEncoder, corpus: Corpus) -> tuple[Corpus, list[Skipped]]:
    """Return the images for which an encoder with stored rows has a row, and the other images with reasons."""
    unknown = encoder.unknown_images(corpus.images) if _has_stored_rows(encoder) else {}
    if not unknown:
        return corpus, []
    known_corpus = corpus.subset([i for i in range(len(corpus)) if i not in unknown])
    return known_corpus, [Skipped(name_of(corpus.images[i]), reason) for i, reason in unknown.items()]


def _has_stored_rows(encoder: AnyEncoder) -> bool:
    return encoder.reads == "names" and not encoder.by_number


def read_corpus(
    encoder: AnyEncoder | None, images: Photos | None, tags: Any = None, **columns: Unpack[tables.TableOptions]
) -> Corpus:
    """Read images and their tags, or only the tags if the encoder reads names instead of pixels.

    Parameters
    ----------
    encoder : AnyEncoder or None
        The encoder for the images; one that reads names needs no images.
    images, tags
        A folder and a tag file (or a DataFrame or a list of dicts instead); a features folder instead of the image
        folder, for which `tags` may be None; a DataFrame or a list of dicts instead of both; or images for
        `as_images` and a parallel list of tags for `tag_lists`.
    **columns
        The columns of tables, as in `Corpus.read`.

    Raises
    ------
    UserError
        If the encoder needs an image folder and none is given, or an image folder is given and the encoder reads names.
    DataError
        As in `Corpus.read` and `Corpus.read_names`.
    """
    if isinstance(images, Corpus):
        return images
    if isinstance(images, str | os.PathLike) and is_features(images):
        return Features(images).corpus(tags, **columns)
    if images is None:
        return _named_corpus(encoder, tags, columns)
    if isinstance(images, str | os.PathLike) and _is_tag_source(tags):
        if encoder is not None and encoder.by_number:
            raise UserError(
                f"The encoder '{ENCODERS.name_of(encoder)}' knows images by number and opens none, but `images` is "
                f"{images}.",
                setting="images", value=images, advice="Leave `images` out: the file of `tags` names the images.",
            )  # fmt: skip
        return Corpus.read(images, tags, **columns)
    return _listed_corpus(images, tags, columns)


def _named_corpus(encoder: AnyEncoder | None, tags: object, columns: tables.TableOptions) -> Corpus:
    """Read the names or numbers of images from the tags alone."""
    if not _is_tag_source(tags):
        raise UserError(
            "Without images, tags must be in a file that names them.",
            setting="tags", value=tags, advice="Name a file, or pass names and a list of tags each.",
        )  # fmt: skip
    if encoder is None or encoder.reads != "names":
        name = "" if encoder is None else f" '{ENCODERS.name_of(encoder)}'"
        raise UserError(
            f"`images` is missing: the encoder{name} looks at pixels.",
            setting="images", advice="Pass the folder of images (ids, precomputed and data_set do without).",
        )  # fmt: skip
    return Corpus.read_names(tags, **columns)


def _is_tag_source(tags: object) -> TypeGuard[tables.TagSource]:
    """Return whether `tags` also name the images: a file, a DataFrame or a list of dicts."""
    return isinstance(tags, str | os.PathLike) or as_table(tags) is not None


def _listed_corpus(images: Photos, tags: Any, columns: tables.TableOptions) -> Corpus:
    """Return the corpus of a DataFrame, or of parallel lists of images and tags."""
    table = as_table(images)
    if table is not None and (tags is None or (isinstance(tags, str) and tags == "auto")):
        return Corpus.of_table(table, **columns)
    if isinstance(tags, str | os.PathLike):
        raise UserError(
            f"The tags of these images are missing: `tags` is {os.fspath(tags)!r}.", setting="tags", value=tags,
            expected="lists or a Series of the tags of each image, a folder as `images` with a tag file, or a table "
            "with a column of tags (`tags`, or the `tags_column` of `tag_rules`)",
        )  # fmt: skip

    names, items = as_images(images, image_column=columns.get("image_column"))
    in_order = _matrix_names(tags, columns.get("tags_column"))
    tags = tag_lists(tags, columns.get("tags_column"), columns.get("separator"))
    if len(items) != len(tags):
        raise DataError(f"There are {len(items)} images, but tags for {len(tags)}; expected one list per image.")
    return replace(Corpus.of(items, names, tags), tag_order=in_order)


def with_tags(images: Photos) -> Photos:
    """Convert a DataFrame or a list of dicts with a column of tags to a corpus; return anything else unchanged."""
    table = as_table(images)
    if table is None or not _columns_of_tags(table, None):
        return images
    return Corpus.of_table(table)


def tag_lists(tags: Any, tags_column: str | None = None, separator: str | None = None) -> Sequence[Any]:
    """Return the tags of each image as lists; negatives are written ``-tag``.

    Parameters
    ----------
    tags
        A list of tags for each image, as a list or a Series; a Series of texts, which are split as the cells of a tag
        file are; a DataFrame with a column of either (`tags_column`, or as in a tag file); or a matrix (n_images,
        n_tags), above 0 for positive tags, below 0 for negatives. Its tags are a frame's columns, or else "0", "1" ...

    Raises
    ------
    DataError
        If `tags` has another form.
    """
    table = as_table(tags)
    columns: dict[str, Any] = {}
    if table is not None and (names := _columns_of_tags(table, tags_column)):
        columns = {name: table.cells(name) for name in names}
    elif matrix_names := _matrix_names(tags, tags_column):
        return _lists_of_matrix(tags, table, matrix_names)
    else:
        values: Sequence[Any] = listed(tags)
        if values is tags:
            return values if isinstance(values, Sequence | np.ndarray) else list(values)
        columns = {"tags": values}

    first_column = next(iter(columns))
    rows = {"row": list(range(len(columns[first_column])))} | columns
    options: tables.TableOptions = {"image_column": "row", "tags_column": first_column, "separator": separator}
    records = tables.table_records(FrameTable(list(rows), rows.__getitem__), **options)[1] if rows["row"] else []
    return [[*row.tags, *(f"-{tag}" for tag in row.negatives)] for row in records]


def _columns_of_tags(table: FrameTable, tags_column: str | None) -> tuple[str, ...]:
    requested = tables.TAGS_COLUMNS if tags_column is None else (tags_column,)
    return tables.columns_named(requested, tuple(name for name in table.names if isinstance(name, str)))


def _is_matrix(value: Any) -> bool:
    return sp.issparse(value) or (isinstance(value, np.ndarray) and value.ndim == 2 and value.dtype.kind in "biuf")


def _as_numbers(table: FrameTable) -> Doubles | None:
    """Return a table of numbers as a matrix; None if a cell is anything else."""
    columns = [table.column(name) for name in table.names]
    is_numeric = all(isinstance(cell, bool | int | float | np.number) for cells in columns for cell in cells)
    return np.array(columns, np.float64).T if is_numeric else None


def _matrix_names(tags: Any, tags_column: str | None) -> list[str]:
    """Return the tags of the columns of a matrix, or of a table without a column of tags; [] for anything else."""
    if (table := as_table(tags)) is not None:
        return [] if _columns_of_tags(table, tags_column) else list(map(str, table.names))
    return list(map(str, range(tags.shape[1]))) if _is_matrix(tags) else []


def _lists_of_matrix(matrix: Any, table: FrameTable | None, names: list[str]) -> list[list[str]]:
    """Return the tags of each row of a matrix, or of a table with a column for each tag."""
    if table is not None and (matrix := _as_numbers(table)) is None:
        raise TagFileError(
            f"The table has no column of tags named {' or '.join(map(repr, tables.TAGS_COLUMNS))}, and not all are "
            f'numbers; its columns are: {", ".join(names)}. Say which has tags: tag_rules={{"tags_column": NAME}}.'
        )

    Y = check_tags(matrix, matrix.shape[0])
    tags_of_row: list[list[str]] = [[] for _ in range(Y.shape[0])]
    for row, column, value in zip(*sp.find(Y), strict=True):
        tags_of_row[row].append(names[column] if value > 0 else f"-{names[column]}")
    return tags_of_row


def as_images(
    images: Photos, *, unsearched: Unsearched | None = None, videos: bool = False, image_column: str | None = None
) -> tuple[list[str], Sequence[Any]]:
    """Return the names and images of a file, a folder, or a sequence or DataFrame of paths, numbers or pixels.

    The images of a matrix of features are its rows. `unsearched` collects the sub-folders that were left out, as in
    `find_images`. With `videos`, a folder's videos are included. The images of a DataFrame or a list of dicts are in
    the column `image_column`, or in the usual columns of tag files.
    """
    if isinstance(images, Corpus):
        return images.names, images.images
    if isinstance(images, str | os.PathLike):
        folder, images = images, find_images(images, unsearched=unsearched, videos=videos)
        if not images:
            raise DataError(no_images_message(folder))
    if isinstance(images, Image.Image) or (isinstance(images, np.ndarray) and images.ndim == 3):
        images = [images]
    matrix: Any = images
    if (table := as_table(images)) is not None and image_column is None and len(table.names) > 1:
        matrix = (
            None if tables.columns_named(tables.IMAGE_COLUMNS, tuple(map(str, table.names))) else _as_numbers(table)
        )
    if _is_matrix(matrix):
        rows = split_rows(matrix)
        return [f"row {number}" for number in range(len(rows))], rows

    images = listed(images) if table is None else tables.image_cells(table, image_column)
    if not isinstance(images, Sequence | np.ndarray):
        raise DataError(
            f"`images` is a {type(images).__name__}",
            setting="images", value=images,
            expected="a path; a sequence or a Series of paths, Pillow images or uint8 arrays (height, width, 3); a "
            "DataFrame with a column of these; or a matrix of features (n_images, n_features)",
        )  # fmt: skip

    names = []
    items: Any = images
    for number, image in enumerate(items):
        name = image_name(image, number)
        if name is None:
            advice = "Leave out the rows without an image."
            raise DataError(f"Image {number} is missing.", setting="images", value=image, advice=advice)
        names.append(name)
    return names, items


def is_name(encoder: AnyEncoder, image: object) -> bool:
    """Return whether an encoder reads `image` as the name of one image, and not as a file or folder of names."""
    if encoder.reads != "names" or not isinstance(image, str | os.PathLike):
        return False
    return encoder.by_number or not (os.path.isdir(image) or is_features(image))
