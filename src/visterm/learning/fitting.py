"""Run a fit from its request to the saved run; a catalogue learns in `library/learn.py`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from copy import copy

from visterm.core.progress import SILENT, Progress, Say, say_or_warn, silent
from visterm.core.queries import inverse_frequencies
from visterm.core.wording import count_of
from visterm.data.tag_queries import QueryRow
from visterm.features.training_rows import NONE_HELD_OUT, TrainingRows, training_rows
from visterm.learning import fit_input
from visterm.learning.calibrating import with_confidences
from visterm.learning.fit_request import FitRequest
from visterm.learning.learned import Learned, LearnedImages
from visterm.learning.query_rows import check_learns_queries, fit_weighed, query_rows
from visterm.learning.relations import tags_to_learn
from visterm.learning.run import Run
from visterm.learning.start_words import (
    StartWords,
    check_finds_words,
    check_start_words,
    default_word_vectors,
    needs_features_width,
    no_vectors_warning,
    vectors_summary,
)
from visterm.learning.streamed_fit import check_streamed, fit_streamed
from visterm.learning.validation import learn_by_number
from visterm.models.stopping import OnEpoch


def fit_run(run: Run, request: FitRequest, *, say: Say = silent, progress: Progress = SILENT) -> Run:
    """Run the fit of a request, and save the new run if `out` is set: everything that ``visterm fit`` does.

    Invalid requests are rejected before any image is read.

    Parameters
    ----------
    run : Run
        Its encoder and model are fitted (`Tagger.of` makes both from the request); its other parts are not used.
    request : FitRequest
    say : callable
        Called with lines for people about the input, the input that was left out, and the fit.
    progress : Progress

    Raises the errors that `visterm.fit` lists.
    """
    start, cleaning = _prepare(run, request)
    plan = fit_input.plan_streaming(request.images, request.memory, say, model=start.model)
    example = None
    if plan is not None:
        check_streamed(request, cleaning)
        learned, remarks = fit_streamed(
            start, request, plan, aliases=cleaning.aliases, any_encoder=run.any_encoder, progress=progress
        )
        for line in remarks:
            say(line)
    else:
        corpus, lines = fit_input.read_images(start.encoder, request)
        images = fit_input.clean_images(start, request, cleaning, corpus, say, any_encoder=run.any_encoder)
        start = start.changed(encoder=images.encoder, relations=images.relations)
        if request.queries is None:
            start, rows, start_words = rows_of_tags(start, request, images, say, progress)
            learned = learn_rows(start, rows, start_words, progress=progress)
        else:
            learned, rows = fit_queries(start, request, images, lines, progress)
        if remark := start.encoder.remark_on_zeros(rows.X):
            say_or_warn(f"Training photos: {remark}", say)
        if request.calibrate:
            learned = with_confidences(learned, rows, progress)
        learned = learned.changed(facts={**learned.facts, **images.facts})
        for line in _fit_remarks(learned, request, cleaning):
            say(line)
        if images.corpus.encoded is None:  # a readable image, to test the saved run with
            skipped = {photo.image for photo in learned.skipped}
            photos = images.corpus.images
            read = (p for p in photos if not isinstance(p, str | os.PathLike) or os.fspath(p) not in skipped)
            example = next(read, None)

    fitted = Run.of_parts(learned)
    if request.out is not None:
        fitted.save(request.out, overwrite=request.overwrite, example=example)
    return fitted


def check_request(run: Run, request: FitRequest) -> None:
    """Read the files of a request, and check everything that can be checked before photos are downloaded.

    Raises the UserError, DataError or StorageError that `fit_run` would raise later.
    """
    start, cleaning = _prepare(run, request)
    if cleaning.words:
        vectors = request.word_vectors
        default = default_word_vectors(start.model, start.encoder)
        check_finds_words(start.model, start.encoder, default if vectors is None else vectors)


def rows_of_tags(
    start: Learned, request: FitRequest, images: fit_input.ImagesToLearn, say: Say, progress: Progress
) -> tuple[Learned, TrainingRows, StartWords | None]:
    """Return `start` with the reference corpus, the training rows, and the start vectors of the tags."""
    model, encoder, corpus, cleaning = start.model, start.encoder, images.corpus, images.cleaning
    words, vectors, start_words = cleaning.words, request.word_vectors, None
    if vectors is None:
        vectors = default_word_vectors(model, encoder)
    if words:
        check_finds_words(model, encoder, vectors)
    if vectors is not None:  # before the images are encoded, which may take hours
        tags = tags_to_learn(corpus, request.min_count, cleaning.aliases)
        start_words = StartWords.read(model, vectors, tags.with_words(words), encoder)
        words = start_words.words_to_learn(words, tags, say)
    elif warning := no_vectors_warning(model, encoder):
        say(warning)

    vectors_read = None if start_words is None else start_words.vectors
    text_width = vectors_read.width if vectors_read and needs_features_width(model) else None
    rows = training_rows(
        encoder, corpus, min_count=request.min_count, aliases=cleaning.aliases, words=words, text_width=text_width,
        progress=progress,
    )  # fmt: skip
    reference = None if request.idf is None else fit_input.reference_of(request.idf, encoder, rows.vocabulary)
    return start.changed(reference=reference), rows, start_words


def fit_queries(
    start: Learned, request: FitRequest, images: fit_input.ImagesToLearn, lines: Sequence[QueryRow], progress: Progress
) -> tuple[Learned, TrainingRows]:
    """Learn from queries and their relevant images; return the result and the training rows."""
    queries = query_rows(
        start.encoder, images.corpus, lines, only_tags=request.learns_tags, min_count=request.min_count,
        aliases=images.cleaning.aliases, progress=progress,
    )  # fmt: skip
    rows = queries.rows
    start.relations.side_knowledge(rows.vocabulary, start.model.takes)  # raises DataError if no words are related
    reference = None if request.idf is None else fit_input.reference_of(request.idf, start.encoder, rows.vocabulary)
    idf = inverse_frequencies(rows.vocabulary.counts, rows.X.shape[0]) if reference is None else reference.idf
    queries.fit(start.model, idf, progress)
    learned = learned_of(start.changed(reference=reference), rows)
    return learned.changed(facts={**learned.facts, **queries.facts}), rows


def learn_rows(
    start: Learned,
    rows: TrainingRows,
    start_words: StartWords | None = None,
    *,
    progress: Progress = SILENT,
    on_epoch: OnEpoch | None = None,
) -> Learned:
    """Learn from encoded rows: the second half of a fit, which can also compare models on the same rows.

    `start` has the encoder, the model, the relations and the weights of words; `start_words` has the start vectors of
    tags. `on_epoch` is passed to `Annotator.fit`, except for images known by number and with a reference corpus.
    """
    tag_vectors = None
    if start_words is not None:
        tag_vectors, words = start_words.tag_vectors(start.model, rows)
        start = start.changed(words=words)
    side = start.relations.side_knowledge(
        rows.vocabulary, start.model.takes, blocks=start.encoder.blocks, word_vectors=tag_vectors
    )
    rows = rows._replace(side=side)
    model = start.model
    if rows.by_number:
        model = learn_by_number(model, rows, progress)
    elif start.reference is not None:
        fit_weighed(model, rows, start.reference.idf, progress)
    else:
        model.fit(rows.X, rows.Y, side=side, valid=rows.valid, monitor=progress, on_epoch=on_epoch)
    return learned_of(start.changed(model=model), rows)


def learned_of(start: Learned, rows: TrainingRows) -> Learned:
    """Return the result of a fit on rows; the encoder, the model and the words are those of `start`."""
    held_out = getattr(start.model, "n_held_out_", 0) if rows.valid is None else rows.valid[0].shape[0]
    learned = start.changed(
        vocabulary=rows.vocabulary, skipped=rows.skipped, learned_images=LearnedImages.of(rows.names),
        given=rows.Y if rows.by_number else None, calibration=None,
    )  # fmt: skip
    counts = learned.counts(*rows.X.shape, held_out=held_out, tags_given=int((rows.Y.data > 0).sum()))
    return learned.changed(facts=counts)


def _prepare(run: Run, request: FitRequest) -> tuple[Learned, fit_input.Cleaning]:
    """Check a request before any image is read; return the encoder and model to fit, and how to clean tags.

    If the request sets the share to hold out, the model is a copy with this share.
    """
    model = run.model
    if request.valid is not None:
        model = copy(model).set_known(valid_share=request.valid)
    if not run.any_encoder:  # otherwise features may replace the encoder
        run.encoder.check_settings()
    model.check_settings()
    if request.word_vectors is not None:
        check_start_words(model, request.word_vectors)
    cleaning = fit_input.Cleaning.read(request)
    if request.queries is not None:
        check_learns_queries(model)
    fit_input.check_relations(model, request)
    return Learned(encoder=run.encoder, model=model), cleaning


def _fit_remarks(learned: Learned, request: FitRequest, cleaning: fit_input.Cleaning) -> list[str]:
    """Return lines for people about the inputs that the fit used and left out."""
    lines, model, facts = [], learned.model, learned.facts
    stops_early = hasattr(model, "epochs") and hasattr(model, "valid_share") and request.valid != 0
    history = getattr(model, "history_", [])
    if stops_early and not any(entry.get(name) is not None for entry in history for name in ("map", "mean_rank")):
        lines.append(NONE_HELD_OUT)
    if learned.words.source is not None:
        lines.append(vectors_summary(learned.words, facts["tags"]))
    lines += filter(None, (getattr(part, "note", "") for part in (model, *getattr(model, "members_", ()))))
    lines += cleaning.summary(learned.vocabulary.aliases)

    if request.queries is not None:
        if n_unused := facts["queries left out"]:
            reason = "without a relevant image among those learned from, or a word of the run"
            lines.append(f"Left out: {count_of(n_unused, 'query')} {reason}.")
        if n_missing := facts["images of queries not there"]:
            lines.append(f"The queries name {count_of(n_missing, 'image')} that the fit did not learn from.")
    return lines
