"""Learn a run from a catalogue: from given and accepted tags, and from rejected tags."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
from visterm.core.vocabulary import Vocabulary, tag_key
from visterm.data.tag_tree import TagTree
from visterm.data.word_vectors import vectors_of_tags
from visterm.features.training_rows import TrainingRows
from visterm.learning.calibrating import N_CORRECT_TAGS, what_to_expect, with_confidences
from visterm.learning.fitting import learn_rows
from visterm.learning.learned import Learned
from visterm.learning.part_settings import make_model
from visterm.learning.relations import WordRelations
from visterm.learning.start_words import SETTING, StartWords
from visterm.learning.word_places import LEARNED
from visterm.library import runs
from visterm.library.learned import (
    BETTER,
    IS_WORSE,
    MIN_COMPARED_PHOTOS,
    NOT_BETTER,
    QUICK,
    START,
    TOO_FEW,
    WENT_BACK,
    WORSE,
    Comparison,
    LearningOutcome,
    outcome_text,
    tag_list_text,
)
from visterm.library.photos import ALIASES_KEY, TREE_KEY, remembered_pairs
from visterm.library.rows import RowWriter
from visterm.library.training import (
    BY_CONTENT,
    CatalogueImages,
    image_precisions,
    learnable_and_held_out,
    learned_names,
    unjudged_rows,
    unlearned_positions,
)
from visterm.metrics.significance import paired_bootstrap
from visterm.models.abilities import AddsTags, LearnsOn, RelearnsTags
from visterm.models.base import Annotator
from visterm.models.confidence.calibration import Calibration
from visterm.models.confidence.fit_calibration import MIN_IMAGES
from visterm.models.stopping import OnEpoch
from visterm.store.catalogue import StoredCatalogue
from visterm.store.history import CatalogueJob, StoredProgress
from visterm.tagging.tagger import Tagger

LEARNED_HERE = "learned from this catalogue"  # Fact of a run that was trained on the catalogue's own tags
MIN_IMAGE_RATIO = 0.5  # Fit again without `full` only with at least this share of the current run's training images


def learn(
    tagger: Tagger,
    stored: StoredCatalogue,
    *,
    full: bool = False,
    min_count: int = 1,
    use_even_if_worse: bool = False,
    cautious: bool = False,
    by_itself: bool = False,
    quick: bool = False,
    job_id: int | None = None,
    stop: Callable[[], bool] = lambda: False,
    progress: Progress = SILENT,
) -> LearningOutcome:
    """Learn a run from a catalogue; see `Catalogue.learn`. With `quick`, a first run keeps its model, and its rows."""
    if stored.folder is None:
        raise StorageError("A catalogue in memory has no features to learn from. Save it, and load it again.")
    with CatalogueJob(stored.jobs, "fit", job_id, stop) as job, stored.writing():
        progress = StoredProgress(stored.jobs, job.id, progress)
        runs.forget_unfinished(stored)
        run = stored.runs.current()
        writer = RowWriter(tagger, stored, run.id)
        writer.encode_missing(sorted(stored.tags.held().keys() | stored.tags.rejected().keys()), CHUNK, job, progress)
        # The first run that learns the tags of files is compared with none, so it learns from all tagged photos
        is_first = START in tagger.facts and stored.tags.come_from_files() and not quick
        tagger, full = (_first_learner(tagger, stored), True) if is_first else (tagger, full)
        train, held_out = learnable_and_held_out(tagger, stored, writer.features, min_count, hold_out=not is_first)
        keeps_rows = isinstance(tagger.model, RelearnsTags)
        n_before = int(tagger.facts.get("images", 0)) if tagger.facts.get("tags given", 1) else 0
        has_enough = train.n_tagged >= MIN_IMAGE_RATIO * n_before
        # If possible, models that keep their rows are fitted again: updates would count images once more in each round
        updates_tags = _can_update_tags(tagger, full) and not (has_enough and keeps_rows)
        if not (full or updates_tags or has_enough):
            raise _too_few_images_error(tagger, train)
        if updates_tags:
            learned = _with_updated_tags(tagger, train, held_out)
        else:
            unjudged = unjudged_rows(stored, writer.features, train) if keeps_rows else None
            synonyms = dict(remembered_pairs(stored, ALIASES_KEY)) if is_first else {}
            learned = _fitted_again(
                tagger, train, held_out, unjudged, synonyms, min_count, progress,
                lambda _: "stop" if job.cancelled else None, quick,
            )  # fmt: skip

        comparison = _comparison_facts(tagger, learned, held_out)
        is_same = learned.fingerprint == run.fingerprint
        why_not = "" if is_same or use_even_if_worse else _why_unused(stored, learned, comparison, cautious, by_itself)
        outcome = _outcome(
            tagger, learned, train, held_out, run_before=run.fingerprint, full=not updates_tags, in_use=not why_not,
            why_not=why_not, number=run.id, number_before=run.id, is_first=is_first, is_quick=quick, **comparison,
        )  # fmt: skip

        if not is_same and not job.cancelled:
            rows_of = run.rows_of if updates_tags or keeps_rows else None
            mark = {START: QUICK} if quick else {}  # stored with the change of the run: a kill may follow
            facts = {LEARNED_HERE: True, **comparison, **mark, "run_before": run.fingerprint}
            details = {"learned": outcome.summary, **comparison}
            is_new = all(other.fingerprint != learned.fingerprint for other in runs.known_runs(stored))
            first_facts = facts if why_not else {"unfinished": True} if is_new else None
            number = runs.keep_run(learned, stored, rows_of=rows_of, facts=first_facts)
            if why_not:
                stored.history.note(runs.NOT_USED, run=learned.fingerprint, why=why_not, **details)
            else:
                details |= {"before_run": run.fingerprint, "full": rows_of is None}
                runs.bring_into_use(learned, stored, number, job, progress, kind=runs.FIT, facts=facts, **details)
            outcome = replace(outcome, number=number)

        if job.cancelled and stored.origin.fingerprint == run.fingerprint:
            runs.forget_unfinished(stored)
            return LearningOutcome(
                run.fingerprint, not updates_tags, 0, len(tagger.vocabulary), 0, len(held_out), None, None, 0,
                run.fingerprint, cancelled=True,
            )  # fmt: skip
        job.message = outcome_text(outcome, stored.folder)
        return outcome


def _first_learner(tagger: Tagger, stored: StoredCatalogue) -> Tagger:
    """Return a tagger that learns the tags of files: the default model in place of one for a few tags, and the tree."""
    model = make_model(None, {}, {"random_state": 0, "n_jobs": getattr(tagger.encoder, "n_jobs", None)})
    tree = remembered_pairs(stored, TREE_KEY)
    return Tagger.of_parts(Learned(encoder=tagger.encoder, model=model, relations=WordRelations(tree=tree, is_a=tree)))


def left_out_remark(tagger: Tagger, stored: StoredCatalogue, *, full: bool, min_count: int) -> str:
    """Return a sentence with the tags that `learn` will not learn, and why; empty if it learns all tags."""
    if _can_update_tags(tagger, full):
        return ""
    lists = list(stored.tags.held().values())
    if tagger.tree is not None:
        lists = tagger.tree.words.completed(lists, [[]] * len(lists))[0]
    given_tags, vocabulary = Vocabulary.from_lists(lists, aliases=tagger.vocabulary.aliases), tagger.vocabulary
    rare_tags = [tag for tag, count in zip(given_tags.tags, given_tags.counts, strict=True) if count < min_count]
    gone_tags = [
        tag for tag, count in zip(vocabulary.tags, vocabulary.counts, strict=True) if count and tag not in given_tags
    ]
    reasons = ((rare_tags, f"on fewer than {min_count} photos"), (gone_tags, "no photo of the catalogue has them"))
    parts = [f"{tag_list_text(tags)} ({reason})" for tags, reason in reasons if tags]
    return f"Not learned: {'; '.join(parts)}." if parts else ""


def _can_update_tags(tagger: Tagger, full: bool) -> bool:
    return not full and isinstance(tagger.model, LearnsOn) and isinstance(tagger.model, AddsTags)


def _outcome(
    old: Tagger, learned: Tagger, train: CatalogueImages, held_out: CatalogueImages, **facts: Any
) -> LearningOutcome:
    new_tags = tuple(tag for tag in learned.vocabulary.tags if tag not in old.vocabulary)
    rare_tags = tuple(tag for tag in Vocabulary.from_lists(train.tags).tags if tag not in learned.vocabulary)
    return LearningOutcome(
        run=learned.fingerprint, images=len(train), tags=len(learned.vocabulary), new_tags=len(new_tags),
        held_out=len(held_out), new=new_tags, too_rare=rare_tags, confidences=learned.calibration is not None,
        expected=what_to_expect(learned.facts) if N_CORRECT_TAGS in learned.facts else "", **facts,
    )  # fmt: skip


def _why_unused(
    stored: StoredCatalogue, learned: Tagger, comparison_facts: Mapping[str, object], cautious: bool, by_itself: bool
) -> str:
    """Return why a new run is not used, see `LearningOutcome.why_not`; empty if it is used."""
    comparison = Comparison.of(comparison_facts)
    verdict = TOO_FEW if comparison is None else comparison.verdict
    if verdict == WORSE or (cautious and verdict == TOO_FEW and comparison is not None and comparison.difference < 0):
        return IS_WORSE
    _, undone_runs, last_step = runs.steps_to_current(stored)
    if learned.fingerprint in undone_runs:
        return WENT_BACK
    return NOT_BETTER if by_itself and verdict != BETTER and last_step == runs.GO_BACK else ""


def _with_updated_tags(tagger: Tagger, train: CatalogueImages, held_out: CatalogueImages) -> Tagger:
    """Return a copy of a tagger whose tag rows were updated in one pass over the images, with rows for new tags."""
    tree_tags, aliases = _new_tree_tags(tagger, train)
    given_tags = Vocabulary.from_lists(train.tags, aliases=aliases)
    new_tags = [tag for tag in given_tags.tags if tagger.vocabulary.get(tag) is None]
    source, vectors = tagger.words.source, {}
    model = deepcopy(tagger.model)  # searches still use the old model
    vocabulary = old_vocabulary = tagger.vocabulary
    if new_tags:
        Y_new = given_tags.subset(given_tags.index(tag) for tag in new_tags).encode(train.tags)
        if isinstance(model, RelearnsTags) and source is not None and source.has_other_words:
            vectors = {SETTING: vectors_of_tags(source.read(new_tags), new_tags)[0]}
        model.add_tags(train.X, Y_new, **vectors)
        counts = np.asarray((Y_new > 0).sum(axis=0), np.int64).ravel()
        counts = np.concatenate([old_vocabulary.counts, counts])
        vocabulary = Vocabulary([*old_vocabulary.tags, *new_tags], counts, old_vocabulary.aliases | given_tags.aliases)

    relations = _with_tree_tags(tagger, tree_tags, vocabulary)
    model.remember(relations.side_knowledge(vocabulary, model.takes))
    model.partial_fit(train.X, train.encode(vocabulary), images=False)
    learned = _with_model(tagger, model, vocabulary, relations)
    learned = learned.changed(learned_images=tagger.learned_images.with_names(learned_names(train.images)))
    if tagger.calibration is not None:
        learned = _with_confidences(learned, train, held_out, tagger.calibration)
    return Tagger.of_parts(learned)


def _fitted_again(
    tagger: Tagger,
    train: CatalogueImages,
    held_out: CatalogueImages,
    unjudged: Matrix | None,
    synonyms: dict[str, str],
    min_count: int,
    progress: Progress,
    on_epoch: OnEpoch,
    quick: bool,
) -> Tagger:
    """Return a tagger that was fitted from scratch; the held-out images stop the training of models that can stop.

    `unjudged` are rows of images without feedback. A `quick` run is for the time until the default model has learned:
    it has no confidences, which take longer than its model.
    """
    tree_tags, aliases = _new_tree_tags(tagger, train)
    vocabulary = Vocabulary.from_lists(train.tags, min_count=min_count, aliases=synonyms | aliases)
    if isinstance(tagger.model, RelearnsTags):  # keep tags without photos: searches find them by their vectors
        old = tagger.vocabulary
        vocabulary = vocabulary.with_words(old.tags[tag] for tag in np.flatnonzero(old.counts == 0))
    if len(vocabulary) == 0:
        problem, advice = f"No tag has {min_count} images to learn from.", "Lower `min_count`, or tag more images."
        raise DataError(problem, setting="min_count", value=min_count, advice=advice)

    unfitted = _with_model(tagger, clone(tagger.model), vocabulary, _with_tree_tags(tagger, tree_tags, vocabulary))
    if unfitted.relations.part_of or unfitted.relations.is_a:  # from runs of older versions
        unfitted.model.set_known(part_of=None, siblings=None)
    rows = _training_rows(vocabulary, train, held_out)
    if unjudged is not None:
        no_tags = sp.csr_array((unjudged.shape[0], len(vocabulary)), dtype=rows.Y.dtype)
        rows = rows._replace(X=stack_rows([rows.X, unjudged]), Y=sp.csr_array(sp.vstack([rows.Y, no_tags])))
    source, start_words = tagger.words.source, None
    if source is not None and SETTING in unfitted.model.takes:
        start_words = StartWords(source, None if source.kind == LEARNED else source.read(vocabulary))
    learned = learn_rows(unfitted, rows, start_words, progress=progress, on_epoch=on_epoch)
    facts = {**learned.facts, BY_CONTENT: True, "images": len(train)}
    learned = learned.changed(facts=facts | {START: QUICK} if quick else facts)
    return Tagger.of_parts(learned if quick else _with_confidences(learned, train, held_out, None))


def _new_tree_tags(tagger: Tagger, train: CatalogueImages) -> tuple[dict[str, tuple[str, str]], dict[str, str]]:
    """Return new tags that are paths in the run's tree (`TagTree.new_names`), and aliases that include their names."""
    aliases, tree = tagger.vocabulary.aliases, tagger.tree
    if tree is None:
        return {}, aliases
    tags = dict.fromkeys(tag for tags in train.tags for tag in tags)
    tree_tags = tree.words.new_names(tags)
    if not len(tagger.vocabulary):  # the first run: its tags are found by their paths, too
        known_keys = set(map(tag_key, tags))
        aliases = {path: name for path, name in tree.words.paths().items() if tag_key(path) not in known_keys}
    return tree_tags, aliases | {path: name for path, (name, _) in tree_tags.items() if path != name}


def _with_tree_tags(tagger: Tagger, tree_tags: dict[str, tuple[str, str]], vocabulary: Vocabulary) -> WordRelations:
    relations = tagger.relations
    if not (pairs := [pair for pair in tree_tags.values() if pair[0] in vocabulary]):
        return relations
    tree = TagTree([*relations.tree, *pairs], vocabulary.aliases).pairs
    return relations._replace(tree=tree, is_a=tree if relations.is_a == relations.tree else relations.is_a)


def _with_model(tagger: Tagger, model: Annotator, vocabulary: Vocabulary, relations: WordRelations) -> Learned:
    reference = tagger.reference if vocabulary.tags == tagger.vocabulary.tags else None
    return Learned(
        encoder=tagger.encoder, model=model, vocabulary=vocabulary, facts={**tagger.facts, "tags": len(vocabulary)},
        relations=relations, words=tagger.words, reference=reference,
    )  # fmt: skip


def _training_rows(vocabulary: Vocabulary, train: CatalogueImages, held_out: CatalogueImages) -> TrainingRows:
    """Return the training rows, with the held-out images for validation if enough of them have tags."""
    valid = (held_out.X, held_out.encode(vocabulary)) if held_out.n_tagged >= MIN_IMAGES else None
    return TrainingRows(vocabulary, train.X, train.encode(vocabulary), valid, [], names=[*learned_names(train.images)])


def _with_confidences(
    learned: Learned, train: CatalogueImages, held_out: CatalogueImages, previous: Calibration | None
) -> Learned:
    """Fit confidences on held-out images; if there are too few, use the `previous` confidences."""
    rows = _training_rows(learned.vocabulary, train, held_out.subset(unlearned_positions(learned, held_out.images)))
    if rows.valid is not None or previous is None:
        return with_confidences(learned, rows)
    n_new_tags = len(learned.vocabulary) - previous.slope.size
    if n_new_tags == 0:
        return learned.changed(calibration=previous)
    # New tags get the median line; the previous cut-offs do not apply to them
    slope, offset = (np.append(a, np.full(n_new_tags, np.median(a))) for a in (previous.slope, previous.offset))
    return learned.changed(calibration=previous._replace(slope=slope, offset=offset, held_out=None))


def _comparison_facts(old_run: Tagger, new_run: Tagger, held_out: CatalogueImages) -> Mapping[str, Any]:
    """Measure the old and the new run on held-out images that neither learned from, over the tags that both know."""
    images = held_out.images
    part = held_out.subset(np.intersect1d(unlearned_positions(old_run, images), unlearned_positions(new_run, images)))
    shared_tags = [tag for tag in new_run.vocabulary.tags if tag in old_run.vocabulary]
    precisions = image_precisions([old_run, new_run], part, shared_tags) if part.n_tagged and shared_tags else []
    if not precisions:
        return {"before": None, "after": None, "compared": 0, "interval": None}
    old_precisions, new_precisions = precisions
    interval = None
    if np.count_nonzero(~np.isnan(old_precisions)) >= MIN_COMPARED_PHOTOS:
        change = paired_bootstrap(new_precisions, old_precisions)
        interval = (change.low, change.high)

    return {
        "before": float(np.nanmean(old_precisions)),
        "after": float(np.nanmean(new_precisions)),
        "compared": part.n_tagged,
        "interval": interval,
    }


def _too_few_images_error(tagger: Tagger, train: CatalogueImages) -> UserError:
    return UserError(
        f"The model '{MODELS.name_of(tagger.model)}' can only be fitted from scratch, and the catalogue has "
        f"{train.n_tagged:,} tagged images, while its run learned from {int(tagger.facts.get('images', 0)):,}: the new "
        "run would know less.",
        setting="full",
        value=False,
        advice="Index the photos that the run learned from with their tags (visterm index CATALOGUE PHOTOS --tags "
        "FILE), or learn from the catalogue's images alone with `full`.",
    )
