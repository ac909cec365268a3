"""A fit from its request to what a run has learned: the one way of the command line, Python and the service."""

from __future__ import annotations

import os
from collections.abc import Mapping
from itertools import compress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from visterm.core.errors import UserError
from visterm.core.progress import SILENT, Progress, Say, silent
from visterm.core.queries import inverse_frequencies
from visterm.core.wording import count_of
from visterm.data.corpus import Corpus
from visterm.data.query_files import QueryRow
from visterm.encoders.named import default_line
from visterm.features.training_rows import NONE_HELD_OUT, training_rows
from visterm.models.abilities import PlacesWords
from visterm.tagging.fit_input import Cleaning, plan_streaming, read_images, relations_to_learn
from visterm.tagging.fit_request import FitRequest
from visterm.tagging.query_rows import check_learns_queries, query_rows
from visterm.tagging.relations import SENSES, WordRelations, tags_to_learn
from visterm.tagging.run import Run
from visterm.tagging.start_words import (
    StartWords,
    check_start_words,
    needs_features_width,
    no_text_tower,
    random_vectors_warning,
    usual_word_vectors,
    vectors_summary,
    without_vectors,
)
from visterm.tagging.word_places import ENCODER

if TYPE_CHECKING:
    from visterm.features.streaming.memory import Plan


def fit_run(run: Run, request: FitRequest, *, say: Say = silent, progress: Progress = SILENT) -> None:
    """Let a run learn what a request asks for, and write it if it has a place: all that ``visterm fit`` does.

    What cannot be used is refused before any image is read.

    Parameters
    ----------
    run : Run
        With its encoder and model, which are not made anew (`Tagger.of` makes those of the request).
    request : FitRequest
    say : callable
        Takes lines for people: what was found, left out, and how the fit was done.
    progress : Progress

    Raises
    ------
    DataError
        If no image or no tag is left to learn from, no part-of relation is between two of the tags, none of the tags
        has a word vector, or no query has both a relevant image and a word.
    UserError
        If settings do not go together, or the model cannot learn what is requested.
    EncoderMismatchError
        If features are given that another encoder made than the requested one.
    StorageError
        If something that is not a run lies at `out`.
    """
    run.check_settings(request.valid)
    if request.word_vectors is not None:
        check_start_words(run.model, request.word_vectors)
        if request.queries is not None:
            raise UserError("Word vectors are of tags, but queries are learned. Leave --word-vectors out.")
    if request.words and request.queries is not None:
        raise UserError("--words are tags, but queries are learned. Leave --words out.")
    sources = request.sources()
    cleaning = Cleaning.read(request)
    plan = plan_streaming(request.images, request.memory, say, model=run.model)
    if plan is not None:
        _fit_streamed(run, request, plan, cleaning, say, progress)
        return
    if not request.learns_tags and (sources.any or request.relations is not None):
        raise UserError(
            "Relations are between tags, and only queries are given. Add --tags, or leave the relations out."
        )
    if request.queries is not None:
        check_learns_queries(run.model)
    corpus, lines, read = read_images(run.encoder, request, say)
    if run.any_encoder and corpus.encoded is None:
        say(default_line())
    corpus, grown = cleaning.grow(corpus, say)
    corpus, pruned = grown.prune(corpus, say)
    relations = grown.relations(relations_to_learn(run.model, request, sources, corpus, grown.aliases, say))
    if corpus.encoded is not None:
        run.take_encoder(corpus.encoded.encoder, corpus.encoded.requested)
    run.forget_words()
    if request.queries is not None:
        _fit_queries(run, request, corpus, lines, relations, cleaning.aliases, progress)
    else:
        aliases, starts, words = grown.aliases, None, cleaning.words
        vectors = request.word_vectors
        if vectors is None:
            vectors = usual_word_vectors(run.model, run.encoder)
        if words:
            _check_finds_words(run, vectors)
        if vectors is not None:  # before the images are encoded, which may take hours
            tags = tags_to_learn(corpus, run.min_count, aliases)
            starts = StartWords.read(run.model, vectors, tags.with_words(words), run.encoder)
            words = starts.words_to_learn(words, tags, say)
        elif alone := without_vectors(run.model, run.encoder):
            say(alone)
        width = starts.vectors.width if starts and starts.vectors and needs_features_width(run.model) else None
        rows = training_rows(
            run.encoder, corpus, min_count=run.min_count, aliases=aliases, words=words, text_width=width,
            progress=progress,
        )  # fmt: skip
        run.refer_to(request.idf, rows.vocabulary)
        run.relate(relations, rows.vocabulary)
        if starts is not None:
            run.words = starts.set_vectors(run.model, rows)
        run.learn(rows, calibrate=request.calibrate, progress=progress)
    run.facts |= read | pruned
    for line in _how_it_went(run, request, cleaning):
        say(line)
    if request.out is not None:
        run.save(request.out, overwrite=request.overwrite, example=_example(run, corpus))
        if run.relations.senses is not None:
            say(
                f"How tags were matched is in {Path(request.out) / SENSES}; correct it, and name it: "
                "the tag rule tag_synsets."
            )


def _example(run: Run, corpus: Corpus) -> Any:
    """Return an image that was read; None where the rows of all are on file."""
    if corpus.encoded is not None:
        return None
    skipped = {photo.image for photo in run.skipped}
    is_read = (not isinstance(photo, str | os.PathLike) or os.fspath(photo) not in skipped for photo in corpus.images)
    return next(compress(corpus.images, is_read), None)


def check_request(run: Run, request: FitRequest) -> None:
    """Read the files that a request names, and check what can be checked before photos are fetched.

    Raises UserError, DataError or StorageError as `fit_run` would after that.
    """
    run.check_settings(request.valid)
    if Cleaning.read(request).words:
        vectors = request.word_vectors
        _check_finds_words(run, usual_word_vectors(run.model, run.encoder) if vectors is None else vectors)


def _check_finds_words(run: Run, vectors: Any) -> None:
    """Refuse --words that nothing could find, and say what is missing."""
    if not isinstance(run.model, PlacesWords):
        raise UserError("--words are found by their vectors, which this model doesn't take. Add --model text_ridge.")
    if vectors is None:
        why, add = f"{no_text_tower(run.encoder)}. Take an encoder that has one (visterm encoders), or add", "FILE"
        if run.encoder.reads_texts:
            why, add = "this model has none yet. Add", ENCODER
        raise UserError(f"--words are found by their vectors, and {why} --word-vectors {add}.")


def _fit_queries(
    run: Run,
    request: FitRequest,
    corpus: Corpus,
    lines: list[QueryRow],
    relations: WordRelations | None,
    aliases: Mapping[str, str] | None,
    progress: Progress,
) -> None:
    """Learn from queries and the images that are relevant to them."""
    found = query_rows(
        run.encoder, corpus, lines, of_tags=request.learns_tags, min_count=run.min_count, aliases=aliases,
        progress=progress,
    )  # fmt: skip
    run.refer_to(request.idf, found.rows.vocabulary)
    run.relate(relations, found.rows.vocabulary)
    reference, rows = run.reference, found.rows
    idf = reference.idf if reference is not None else inverse_frequencies(rows.vocabulary.counts, rows.X.shape[0])
    found.fit(run.model, idf, progress)
    run.learned(found.rows)
    run.facts |= found.facts
    if request.calibrate:
        run.find_confidences(found.rows, progress)


def _fit_streamed(run: Run, request: FitRequest, plan: Plan, cleaning: Cleaning, say: Say, progress: Progress) -> None:
    """Learn from features on disk, window by window, and write the run."""
    from visterm.tagging.streamed_fit import fit_streamed

    rules = request.rules
    unusable = {
        "--queries": request.queries, "The tag rule part_of": rules.part_of, "The tag rule isa": rules.isa,
        "relations": request.relations, "--word-vectors": request.word_vectors, "--words": cleaning.words,
        "The tag rule stop_tags": list(rules.stop_tags), "--tree": request.tree,
        "The tag rule max_share": rules.max_share, "The tag rule per_user": rules.per_user,
    }  # fmt: skip
    if given := [option for option, value in unusable.items() if value not in (None, [])]:
        otherwise = "allow more memory (--memory)"
        if given[0] == "--tree":
            otherwise += ", or write the tags above each tag into the table of tags yourself"
        raise UserError(
            f"{given[0]} needs the tags of all images in memory, and these features are streamed. Leave it out, or "
            f"{otherwise}."
        )
    how: dict[str, Any] = {
        "work": request.work_folder("streaming"), "seed": run.seed, "valid": request.valid, "split": request.split,
        "idf": request.idf, "aliases": cleaning.aliases, "calibration": request.calibrate, "progress": progress,
        **rules.columns(),
    }  # fmt: skip
    features: Any = request.images
    run.forget_words()
    run.relate(None, run.vocabulary)
    for line in fit_streamed(run, features, request.tags, plan, **how):
        say(line)
    if request.out is not None:
        run.save(request.out, overwrite=request.overwrite)


def _how_it_went(run: Run, request: FitRequest, cleaning: Cleaning) -> list[str]:
    """List what a fit did without: validation images, word vectors, aliases, queries."""
    lines = []
    stops = {"epochs", "valid_share"} <= set(run.model.get_params(deep=False)) and request.valid != 0
    history = getattr(run.model, "history_", [])
    if stops and not any(entry.get(name) is not None for entry in history for name in ("map", "mean_rank")):
        lines.append(NONE_HELD_OUT)
    if run.words.source is not None:
        lines.append(vectors_summary(run.words, run.facts["tags"]))
    elif at_random := random_vectors_warning(run.model):
        lines.append(at_random)
    lines += cleaning.summary(run.vocabulary.aliases)
    if request.queries is not None:
        if unused := run.facts["queries left out"]:
            lines.append(
                f"{unused:,} {'query has' if unused == 1 else 'queries have'} no relevant image among those learned "
                "from, or no word of the run; left out."
            )
        if missing := run.facts["images of queries not there"]:
            lines.append(
                f"{count_of(missing, 'image')} that the queries name {'is' if missing == 1 else 'are'} not among those "
                "learned from."
            )
    return lines
