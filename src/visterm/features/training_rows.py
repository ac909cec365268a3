"""From what users give (folders, files, arrays, tag lists) to the rows that a model learns from."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, Unpack

import numpy as np
import scipy.sparse as sp

from visterm.core.checks import check_tags, identity_rows
from visterm.core.errors import DataError, EncoderMismatchError, ShapeError, UserError
from visterm.core.progress import SILENT, Progress
from visterm.core.tables import ENCODERS
from visterm.core.types import Matrix, Skipped
from visterm.core.vocabulary import Vocabulary
from visterm.core.wording import count_of
from visterm.data.corpus import Corpus, EncodedBefore
from visterm.data.image_folders import find_images, no_images
from visterm.data.tag_files import TableOptions
from visterm.encoders.contract import AnyEncoder, name_of
from visterm.features.contents import is_features

if TYPE_CHECKING:
    from visterm.encoders.precomputed import NamesMatched

Photos: TypeAlias = "str | os.PathLike[str] | Corpus | Sequence[Any]"

FEW = 8  # Images that show how long rows are
LEARNED, HELD_OUT = "train", "valid"  # The splits that are learned from, and that say when to stop
NONE_HELD_OUT = "Fewer than 50 validation images: early stopping is off, all epochs were run."


class TrainingRows(NamedTuple):
    """Features and tags to learn from, and those that the corpus holds out to choose when to stop."""

    vocabulary: Vocabulary  # The tags of the columns of `Y`
    # matrices, shape (n_images, n_features) and (n_images, n_tags). Rows to learn from.
    X: Matrix
    Y: sp.csr_array
    valid: tuple[Matrix, sp.csr_array] | None  # Rows of the split "valid"; None where none of them has a known tag
    skipped: list[Skipped]  # Images that could not be read, or that the encoder does not know
    by_number: bool = False
    """Whether images are known only by number: `X` is the identity, and those of `valid` are among them."""
    names: Sequence[str] = ()  # Of the images that are learned from, and of those held out


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
    """Collect the vocabulary of the rows to learn from, fit the encoder on their images, and encode.

    A corpus with splits is learned from its rows of "train", with those of "valid" held out; one without, from all. An
    encoder that encoded the images before is not fitted again. `aliases` are spellings and the tags that they mean;
    `words` are tags, too, even those that no image has. `text_width` is how many numbers a row must have to go with
    word vectors. Raises DataError if no image or no tag is left to learn from, or an encoder with rows on file has none
    for any image; EncoderMismatchError if the images were encoded before, by another encoder; ShapeError if rows are
    not of `text_width`, before all images are encoded.
    """
    train = corpus.select(LEARNED) if any(corpus.splits) else corpus
    held_out = corpus.subset([i for i, split in enumerate(corpus.splits) if split == HELD_OUT])
    _refuse_if_no_row(_match_names(encoder, train), train)
    train, unknown = known_part(encoder, train)
    held_out, unknown_held_out = known_part(encoder, held_out)
    vocabulary = Vocabulary.from_lists(train.tags, min_count=min_count, aliases=aliases).with_words(words)
    if len(vocabulary) == 0:
        raise DataError(
            f"No tag is on {min_count} or more of the {count_of(len(train), 'training photo')} "
            f"(--min-count {min_count}). Lower --min-count, or check the tags column of the tag file."
        )
    if corpus.encoded is None:
        encoder.fit(train.images, skip_unreadable=True, progress=progress)
    if text_width is not None:
        _check_width(encoder, train, text_width)
    X, Y, skipped = encode_corpus(encoder, train, vocabulary, progress)
    X_valid, Y_valid, skipped_valid = encode_corpus(encoder, held_out, vocabulary, progress)
    if encoder.by_number:
        Y = check_tags(X.T @ Y, X.shape[1])
        X = identity_rows(X.shape[1])
    valid = (X_valid, Y_valid) if Y_valid.nnz > 0 and Y_valid.max() > 0 else None
    left_out = [*unknown, *unknown_held_out, *skipped, *skipped_valid]
    return TrainingRows(vocabulary, X, Y, valid, left_out, encoder.by_number, [*train.names, *held_out.names])


def _check_width(encoder: AnyEncoder, corpus: Corpus, text_width: int) -> None:
    """Refuse word vectors of another width than rows of images; encodes a few images where the encoder can't tell."""
    width = encoder.width
    if width is None:
        rows, kept, _ = source_of_rows(encoder, corpus).encode(corpus.images[:FEW], progress=SILENT)
        width = rows.shape[1] if len(kept) else text_width
    if width != text_width and not encoder.by_number:
        raise ShapeError(
            f"The word vectors have {text_width:,} numbers, and the rows of images {width:,}. Take vectors of the text "
            "tower of the images' network, or another model (--model sampled_tagger)."
        )


def not_learned(corpus: Corpus) -> list[str]:
    """Return a line on the rows that `training_rows` passes over for their split; nothing where all are used."""
    return splits_not_learned(Counter(corpus.splits))


def splits_not_learned(splits: Counter[str | None]) -> list[str]:
    """Return a line on how many rows of which splits are passed over; nothing where all are used."""
    if not any(splits):
        return []
    unused = Counter({split or "": n for split, n in splits.items() if split not in (LEARNED, HELD_OUT)})
    parts = [
        f"{count_of(n, 'row')} {f'of split {split!r}' if split else 'without a split'}"
        for split, n in sorted(unused.items(), key=lambda item: (not item[0], item[0]))
    ]
    if not parts:
        return []
    listed = " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)
    return [f"{listed} {'is' if unused.total() == 1 else 'are'} not learned from."]


def encode_corpus(
    encoder: AnyEncoder, corpus: Corpus, vocabulary: Vocabulary, progress: Progress = SILENT
) -> tuple[Matrix, sp.csr_array, list[Skipped]]:
    """Return features and tags of the images of a corpus that can be read, and the others with reasons.

    Raises EncoderMismatchError if the images were encoded before, by another encoder.
    """
    if len(corpus) == 0:
        return np.empty((0, 0), np.float32), sp.csr_array((0, len(vocabulary)), dtype=np.float32), []
    X, kept, skipped = source_of_rows(encoder, corpus).encode(corpus.images, progress=progress)
    Y = vocabulary.encode([corpus.tags[i] for i in kept], [corpus.negatives[i] for i in kept])
    return X, Y, skipped


def source_of_rows(encoder: AnyEncoder, corpus: Corpus) -> AnyEncoder | EncodedBefore:
    """Return what encodes the images of a corpus: the encoder, or what holds the rows that it gave them before.

    Raises EncoderMismatchError if those are rows of another encoder.
    """
    if corpus.encoded is None:
        return encoder
    if corpus.encoded.fingerprint != encoder.fingerprint:
        raise EncoderMismatchError(
            f"The features were made by '{ENCODERS.name_of(corpus.encoded.encoder)}' with the fingerprint "
            f"{corpus.encoded.fingerprint}, and '{ENCODERS.name_of(encoder)}' of this run has {encoder.fingerprint}: "
            "their rows do not go together. Encode the photos as the run does: visterm encode IMAGES --run RUN -o "
            "FEATURES"
        )
    return corpus.encoded


def known_part(encoder: AnyEncoder, corpus: Corpus) -> tuple[Corpus, list[Skipped]]:
    """Return the images of a corpus that an encoder with rows on file has one for, and the others with reasons."""
    match = _match_names(encoder, corpus)
    if match is None or match.known.all():
        return corpus, []
    unknown = encoder.unknown_images(corpus.images)
    left_out = [Skipped(name_of(corpus.images[i]), reason) for i, reason in unknown.items()]
    return corpus.subset(np.flatnonzero(match.known)), left_out


def with_row_remarks(encoder: AnyEncoder, corpus: Corpus) -> Corpus:
    """Return the corpus with remarks on images that an encoder with rows on file has none for, and on unused rows.

    Raises DataError if it has a row for none of them.
    """
    match = _match_names(encoder, corpus)
    _refuse_if_no_row(match, corpus)
    remarks = list(corpus.remarks)
    if match is not None and not match.known.all():
        without = [name for name, there in zip(corpus.names, match.known, strict=True) if not there]
        remarks.append(
            f"Left out: {count_of(len(without), 'image')} (such as '{without[0]}') that {match.file} has no row for."
        )
    if match is not None and match.unused:
        remarks.append(
            f"Not used: {len(match.unused):,} of {count_of(match.n_rows, 'row')} of {match.file} (such as "
            f"'{match.unused[0]}'), whose images are not named by the tags."
        )
    return replace(corpus, remarks=remarks)


def _match_names(encoder: AnyEncoder, corpus: Corpus) -> NamesMatched | None:
    """Match the images with the rows that an encoder has on file; None for other encoders, and without images."""
    match_names = getattr(encoder, "match_names", None)
    return None if match_names is None or len(corpus) == 0 else match_names(corpus.images)


def _refuse_if_no_row(match: NamesMatched | None, corpus: Corpus) -> None:
    if match is not None and not match.known.any():
        raise DataError(
            f"Of {count_of(len(corpus), 'image')} named by the tags, none has a row in {match.file}: the tags name "
            f"'{corpus.names[0]}', the file '{match.example}'. Check the names that belong to the rows."
        )


def read_corpus(
    encoder: AnyEncoder,
    images: str | os.PathLike[str] | None,
    tags: str | os.PathLike[str],
    **columns: Unpack[TableOptions],
) -> Corpus:
    """Read images and their tags, or the tags alone where the encoder looks only at names.

    `images` is a folder of images, or a features folder in its place; the rest is as `Corpus.read` takes it. Raises
    UserError if the encoder needs an image folder and there is none, or the other way round; DataError as `Corpus.read`
    and `Corpus.read_names` do.
    """
    name = ENCODERS.name_of(encoder)
    if images is not None and is_features(images):
        from visterm.features.stored import Features  # which loads pyarrow

        return Features(images).corpus(tags, **columns)
    if encoder.by_number and images is not None:
        raise UserError(
            f"The encoder '{name}' knows images by number and opens none, but IMAGES is {images}. "
            "Leave IMAGES out: the tag file (--tags FILE) names the images."
        )
    if images is not None:
        return with_row_remarks(encoder, Corpus.read(images, tags, **columns))
    if encoder.reads == "names":
        return with_row_remarks(encoder, Corpus.read_names(tags, **columns))
    raise UserError(
        f"IMAGES is missing: the encoder '{name}' looks at pixels. Pass the folder of images "
        "(only --encoder ids and --encoder precomputed do without)."
    )


def named_corpus(encoder: AnyEncoder, tags: Any) -> Corpus:
    """Read images known by number from the tag file that names them, where no images are given.

    Raises UserError if the encoder looks at pixels, or the tags are in no file.
    """
    if not isinstance(tags, str | os.PathLike):
        raise UserError("Without images, tags must be a file that names them; or pass names and a list of tags each.")
    return read_corpus(encoder, None, tags)


def as_corpus(images: Photos, tags: Any) -> Corpus:
    """Return the corpus that is meant by a folder and a tag file, or by images and their tags side by side.

    A features folder may stand in place of the image folder; `tags` may then be None.
    """
    if isinstance(images, Corpus):
        return images
    if isinstance(images, str | os.PathLike) and is_features(images):
        from visterm.features.stored import Features

        return Features(images).corpus(tags)
    if isinstance(tags, str | os.PathLike):
        if not isinstance(images, str | os.PathLike):
            raise UserError("With a tag file, images must be a folder; or pass the tags of each image as lists.")
        return Corpus.read(images, tags)
    names, items = as_images(images)
    if len(items) != len(tags):
        raise DataError(f"There are {len(items)} images, but tags for {len(tags)}; expected one list of tags an image.")
    return Corpus.of(items, names, tags)


def as_images(
    images: Photos, *, hidden: list[str] | None = None, videos: bool = False
) -> tuple[list[str], Sequence[Any]]:
    """Return names and images: of a file, of a folder, or of a sequence of paths, numbers or arrays.

    Hidden folders that were left out are appended to `hidden`. With `videos`, those of a folder are among them.
    """
    if isinstance(images, Corpus):
        return images.names, images.images
    if isinstance(images, str | os.PathLike):
        folder, images = images, find_images(images, hidden=hidden, videos=videos)
        if not images:
            raise DataError(no_images(folder))
    if not isinstance(images, Sequence | np.ndarray):
        raise DataError(
            f"images is a {type(images).__name__}; expected a path, or a sequence of paths or uint8 arrays "
            "(height, width, 3)."
        )
    names = []
    for number, image in enumerate(images):
        if isinstance(image, str | os.PathLike):
            names.append(os.fspath(image))
        else:
            names.append(str(image) if isinstance(image, int | np.integer) else f"image {number}")
    return names, images


def is_name(encoder: AnyEncoder, image: object) -> bool:
    """Return whether an encoder takes a text for the name of one image, and not for a file or a folder of them."""
    if encoder.reads != "names" or not isinstance(image, str | os.PathLike):
        return False
    return encoder.by_number or not (os.path.isdir(image) or is_features(image))
