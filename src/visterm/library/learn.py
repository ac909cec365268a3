"""Learning from a catalogue: from the tags that people gave and accepted, and from those that they rejected."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from visterm.core.checks import stack_rows
from visterm.core.errors import DataError, StorageError, UserError
from visterm.core.estimator import clone
from visterm.core.progress import SILENT, Progress
from visterm.core.tables import MODELS
from visterm.core.types import CHUNK, Matrix
from visterm.core.vocabulary import Vocabulary
from visterm.data.tag_tree import TagTree
from visterm.data.word_vectors import vectors_of_tags
from visterm.features.training_rows import TrainingRows
from visterm.learning.calibrating import with_confidences
from visterm.learning.fitting import learn_rows
from visterm.learning.learned import Learned
from visterm.learning.relations import WordRelations
from visterm.learning.start_words import SETTING, StartWords
from visterm.learning.word_places import LEARNED
from visterm.library.earlier_runs import FIT, GO_BACK, NOT_USED, known_runs, steps_to_current
from visterm.library.learned import (
    BETTER,
    FEWEST_COMPARED,
    HELD_BACK,
    IS_WORSE,
    LEFT,
    TOO_FEW,
    WORSE,
    Comparison,
    LearningOutcome,
    in_words,
    some_tags,
)
from visterm.library.rows import RowWriter
from visterm.library.runs import forget_old_rows, forget_unfinished, keep_run, speed_up, switch_to
from visterm.library.training import (
    BY_CONTENT,
    CatalogueImages,
    background,
    gathered,
    image_precisions,
    names_learned,
    not_learned,
)
from visterm.metrics.significance import paired_bootstrap
from visterm.models.abilities import AddsTags, LearnsOn, RelearnsTags
from visterm.models.base import Annotator
from visterm.models.confidence.calibration import Calibration
from visterm.models.confidence.fit_calibration import MIN_IMAGES
from visterm.models.stopping import OnEpoch
from visterm.store.catalogue import StoredCatalogue
from visterm.store.history import CatalogueJob
from visterm.tagging.tagger import Tagger

FROM_HERE = "learned from this catalogue"  # The fact of a catalogue's run that was not brought from elsewhere
ENOUGH = 0.5  # Share of the images that a run learned from, from which on others take their place unasked


def learn(
    tagger: Tagger,
    stored: StoredCatalogue,
    *,
    full: bool = False,
    min_count: int = 1,
    use_even_if_worse: bool = False,
    cautious: bool = False,
    by_itself: bool = False,
    job_id: int | None = None,
    progress: Progress = SILENT,
) -> LearningOutcome:
    """Learn a run from a catalogue; see `Catalogue.learn`."""
    if stored.folder is None:
        raise StorageError("A catalogue in memory keeps no features to learn from. Save it, and load it again.")
    with CatalogueJob(stored.jobs, "fit", job_id) as job, stored.writing():
        forget_unfinished(stored)
        run = stored.runs.current()
        writer = RowWriter(tagger, stored, run.id)
        writer.encode_missing(sorted(stored.tags.held().keys() | stored.tags.rejected().keys()), CHUNK, job, progress)
        train, held_out = gathered(tagger, stored, writer.features, min_count)
        moves_tags = _moves_tags(tagger, full)
        same_rows = isinstance(tagger.model, RelearnsTags)
        if _has_enough(tagger, train, refuse=not (full or moves_tags)) and same_rows:
            moves_tags = False  # learned at once from the same images, which would else count once more in each round
        if moves_tags:
            learned = _moved(tagger, train, held_out)
        else:
            others = background(stored, writer.features, train) if same_rows else None
            learned = _anew(
                tagger, train, held_out, others, min_count, progress, lambda _: "stop" if job.cancelled else None
            )

        compared = _compared(tagger, learned, held_out)
        is_same = learned.fingerprint == run.fingerprint
        why_not = "" if use_even_if_worse or is_same else _why_not(stored, learned, compared, cautious, by_itself)
        outcome = _what_was_learned(
            tagger, learned, train, held_out, run_before=run.fingerprint, full=not moves_tags, in_use=not why_not,
            why_not=why_not, number=run.id, number_before=run.id, **compared,
        )  # fmt: skip

        if not is_same and not job.cancelled:
            rows_of = run.rows_of if moves_tags or same_rows else None
            facts = {FROM_HERE: True, **compared, "run_before": run.fingerprint}
            if not why_not:
                number = _make_current(learned, stored, rows_of, job, progress, facts, outcome.in_words)
            else:
                number = keep_run(learned, stored, rows_of=rows_of, facts=facts)
                stored.history.note(
                    NOT_USED, run=learned.fingerprint, why=why_not, learned=outcome.in_words, **compared
                )  # fmt: skip
            outcome = replace(outcome, number=number)

        if job.cancelled and stored.origin.fingerprint == run.fingerprint:
            forget_unfinished(stored)
            return LearningOutcome(
                run.fingerprint, not moves_tags, 0, len(tagger.vocabulary), 0, len(held_out), None, None, 0,
                run.fingerprint, cancelled=True,
            )  # fmt: skip
        job.message = in_words(outcome, stored.folder)
        return outcome


def left_out(tagger: Tagger, stored: StoredCatalogue, *, full: bool, min_count: int) -> str:
    """Return which tags `learn` will not learn, and why, as a sentence; empty if it learns all."""
    if _moves_tags(tagger, full):
        return ""
    lists = list(stored.tags.held().values())
    if tagger.tree is not None:
        lists = tagger.tree.words.completed(lists, [[]] * len(lists))[0]
    given, known = Vocabulary.from_lists(lists, aliases=tagger.vocabulary.aliases), tagger.vocabulary
    rare = [tag for tag, count in zip(given.tags, given.counts, strict=True) if count < min_count]
    gone = [tag for tag, count in zip(known.tags, known.counts, strict=True) if count and tag not in given]
    why = ((rare, f"on fewer than {min_count} photos"), (gone, "no photo here has them"))
    parts = [f"{some_tags(tags)} ({reason})" for tags, reason in why if tags]
    return f"Not learned: {'; '.join(parts)}." if parts else ""


def _moves_tags(tagger: Tagger, full: bool) -> bool:
    return not full and isinstance(tagger.model, LearnsOn) and isinstance(tagger.model, AddsTags)


def _what_was_learned(
    old: Tagger, learned: Tagger, train: CatalogueImages, held_out: CatalogueImages, **how: Any
) -> LearningOutcome:
    new = tuple(tag for tag in learned.vocabulary.tags if tag not in old.vocabulary)
    rare = tuple(tag for tag in Vocabulary.from_lists(train.tags).tags if tag not in learned.vocabulary)
    return LearningOutcome(
        run=learned.fingerprint, images=len(train), tags=len(learned.vocabulary), new_tags=len(new),
        held_out=len(held_out), new=new, too_rare=rare, confidences=learned.calibration is not None, **how,
    )  # fmt: skip


def _why_not(
    stored: StoredCatalogue, learned: Tagger, compared: Mapping[str, object], cautious: bool, by_itself: bool
) -> str:
    """Return why a new run is not used unless that is asked for, see `LearningOutcome.why_not`; empty if it is used."""
    comparison = Comparison.of(compared)
    verdict = TOO_FEW if comparison is None else comparison.verdict
    if verdict == WORSE or (cautious and verdict == TOO_FEW and comparison is not None and comparison.difference < 0):
        return IS_WORSE
    _, went_back_from, last_step = steps_to_current(stored)
    if learned.fingerprint in went_back_from:
        return LEFT
    return HELD_BACK if by_itself and verdict != BETTER and last_step == GO_BACK else ""


def _moved(tagger: Tagger, train: CatalogueImages, held_out: CatalogueImages) -> Tagger:
    """Move a copy's rows of tags once over the images, and add rows for new tags."""
    grown, aliases = _grown(tagger, train)
    seen = Vocabulary.from_lists(train.tags, aliases=aliases)
    names = [tag for tag in seen.tags if tagger.vocabulary.get(tag) is None]
    source, vectors = tagger.words.source, {}
    model = deepcopy(tagger.model)  # the one that searches stays as it is
    old = tagger.vocabulary
    vocabulary = old
    if names:
        Y_new = seen.subset(seen.index(tag) for tag in names).encode(train.tags)
        if isinstance(model, RelearnsTags) and source is not None and source.gives_others:
            vectors = {SETTING: vectors_of_tags(source.read(names), names)[0]}
        model.add_tags(train.X, Y_new, **vectors)
        counts = np.asarray((Y_new > 0).sum(axis=0), np.int64).ravel()
        counts = np.concatenate([old.counts, counts])
        vocabulary = Vocabulary([*old.tags, *names], counts, old.aliases | seen.aliases)
    relations = _related(tagger, grown, vocabulary)
    model.remember(relations.side_of(vocabulary, model.takes))
    model.partial_fit(train.X, train.encode(vocabulary), images=False)
    learned = _with_another_model(tagger, model, vocabulary, relations)
    learned = learned.changed(learned_images=tagger.learned_images.with_names(names_learned(train.images)))
    if tagger.calibration is not None:
        learned = _with_confidences(learned, train, held_out, tagger.calibration)
    return Tagger.of_parts(learned)


def _anew(
    tagger: Tagger,
    train: CatalogueImages,
    held_out: CatalogueImages,
    others: Matrix | None,
    min_count: int,
    progress: Progress,
    on_epoch: OnEpoch,
) -> Tagger:
    """Fit an unfitted copy on all, stopped by what is held out where the model can stop.

    `others` are rows of images of which nothing was said.
    """
    grown, aliases = _grown(tagger, train)
    vocabulary = Vocabulary.from_lists(train.tags, min_count=min_count, aliases=aliases)
    if isinstance(tagger.model, RelearnsTags):  # tags without photos stay: words found by their vectors
        old = tagger.vocabulary
        vocabulary = vocabulary.with_words(old.tags[tag] for tag in np.flatnonzero(old.counts == 0))
    if len(vocabulary) == 0:
        problem, advice = f"No tag has {min_count} images to learn from.", "Lower `min_count`, or give more tags."
        raise DataError(problem, setting="min_count", value=min_count, advice=advice)
    start = _with_another_model(tagger, clone(tagger.model), vocabulary, _related(tagger, grown, vocabulary))
    if start.relations.part_of or start.relations.is_a:  # settings of runs that were fitted before fit took them
        start.model.set_known(part_of=None, siblings=None)
    rows = _rows(vocabulary, train, held_out)
    if others is not None:
        nothing = sp.csr_array((others.shape[0], len(vocabulary)), dtype=rows.Y.dtype)
        rows = rows._replace(X=stack_rows([rows.X, others]), Y=sp.csr_array(sp.vstack([rows.Y, nothing])))
    source, starts = tagger.words.source, None
    if source is not None and SETTING in start.model.takes:
        starts = StartWords(source, None if source.kind == LEARNED else source.read(vocabulary))
    learned = learn_rows(start, rows, starts, progress=progress, on_epoch=on_epoch)
    learned = learned.changed(facts={**learned.facts, BY_CONTENT: True, "images": len(train)})
    return Tagger.of_parts(_with_confidences(learned, train, held_out, None))


def _grown(tagger: Tagger, train: CatalogueImages) -> tuple[dict[str, tuple[str, str]], dict[str, str]]:
    """Return new tags that are paths in the run's tree, see `TagTree.grown`, and aliases with what they are called."""
    aliases, tree = tagger.vocabulary.aliases, tagger.tree
    grown = {} if tree is None else tree.words.grown(dict.fromkeys(tag for tags in train.tags for tag in tags))
    return grown, aliases | {path: name for path, (name, _) in grown.items() if path != name}


def _related(tagger: Tagger, grown: dict[str, tuple[str, str]], vocabulary: Vocabulary) -> WordRelations:
    relations = tagger.relations
    if not (pairs := [pair for pair in grown.values() if pair[0] in vocabulary]):
        return relations
    tree = TagTree([*relations.tree, *pairs], vocabulary.aliases).pairs
    return relations._replace(tree=tree, is_a=tree if relations.is_a == relations.tree else relations.is_a)


def _with_another_model(tagger: Tagger, model: Annotator, vocabulary: Vocabulary, relations: WordRelations) -> Learned:
    reference = tagger.reference if vocabulary.tags == tagger.vocabulary.tags else None
    return Learned(
        encoder=tagger.encoder, model=model, vocabulary=vocabulary, facts={**tagger.facts, "tags": len(vocabulary)},
        relations=relations, words=tagger.words, reference=reference,
    )  # fmt: skip


def _rows(vocabulary: Vocabulary, train: CatalogueImages, held_out: CatalogueImages) -> TrainingRows:
    """Return what is learned from, and what is stopped by where that is enough to say anything."""
    valid = (held_out.X, held_out.encode(vocabulary)) if held_out.n_tagged >= MIN_IMAGES else None
    names = list(names_learned(train.images))
    return TrainingRows(vocabulary, train.X, train.encode(vocabulary), valid, [], names=names)


def _with_confidences(
    learned: Learned, train: CatalogueImages, held_out: CatalogueImages, before: Calibration | None
) -> Learned:
    """Fit confidences on what was not learned from; where that is too little, those of before stand in."""
    rows = _rows(learned.vocabulary, train, held_out.subset(not_learned(learned, held_out.images)))
    if rows.valid is not None or before is None:
        return with_confidences(learned, rows)
    n_more = len(learned.vocabulary) - before.slope.size
    if n_more == 0:
        return learned.changed(calibration=before)
    # New tags get the middle of the lines; cut-offs were chosen without them
    slope, offset = (np.append(a, np.full(n_more, np.median(a))) for a in (before.slope, before.offset))
    return learned.changed(calibration=before._replace(slope=slope, offset=offset, held_out=None))


def _compared(before: Tagger, after: Tagger, held_out: CatalogueImages) -> Mapping[str, Any]:
    """Measure both runs on images held out that neither learned from, over the tags that both know."""
    part = held_out.subset(np.intersect1d(not_learned(before, held_out.images), not_learned(after, held_out.images)))
    shared = [tag for tag in after.vocabulary.tags if tag in before.vocabulary]
    precisions = image_precisions([before, after], part, shared) if part.n_tagged and shared else []
    if not precisions:
        return {"before": None, "after": None, "compared": 0, "interval": None}
    first, second = precisions
    interval = None
    if np.count_nonzero(~np.isnan(first)) >= FEWEST_COMPARED:
        change = paired_bootstrap(second, first)
        interval = (change.low, change.high)
    return {
        "before": float(np.nanmean(first)),
        "after": float(np.nanmean(second)),
        "compared": part.n_tagged,
        "interval": interval,
    }


def _make_current(
    learned: Tagger,
    stored: StoredCatalogue,
    rows_of: int | None,
    job: CatalogueJob,
    progress: Progress,
    facts: dict[str, Any],
    summary: str,
) -> int:
    """Write rows and predictions of a new run, then put it in the place of the old one, unless the job is cancelled."""
    before = stored.origin.fingerprint
    is_new = all(run.fingerprint != learned.fingerprint for run in known_runs(stored))
    run_id = keep_run(learned, stored, rows_of=rows_of, facts={"unfinished": True} if is_new else None)
    writer = RowWriter(learned, stored, run_id)
    writer.fill(CHUNK, job, progress)
    writer.predict(CHUNK, job, progress)
    if job.cancelled:
        return run_id
    with stored.transaction():
        stored.runs.add(learned.fingerprint, learned.encoder.fingerprint, facts=facts)
        switch_to(stored, run_id)
        compared = {name: facts[name] for name in ("before", "after", "compared", "interval")}
        stored.history.note(
            FIT, run=learned.fingerprint, before_run=before, full=rows_of is None, learned=summary, **compared
        )
    forget_old_rows(stored)
    speed_up(learned, stored)
    return run_id


def _has_enough(tagger: Tagger, train: CatalogueImages, *, refuse: bool) -> bool:
    n_before = int(tagger.facts.get("images", 0))
    has_enough = train.n_tagged >= ENOUGH * (n_before if tagger.facts.get("tags given", 1) else 0)
    if refuse and not has_enough:
        raise UserError(
            f"The model '{MODELS.name_of(tagger.model)}' learns all at once, and of the catalogue's images "
            f"{train.n_tagged:,} have tags to learn from, while its run learned from {n_before:,}: the new run would "
            "know less.",
            setting="full",
            value=False,
            advice="Index the photos that it learned from with their tags (visterm index CATALOGUE PHOTOS --tags "
            "FILE), or learn from these alone with `full`.",
        )
    return has_enough
