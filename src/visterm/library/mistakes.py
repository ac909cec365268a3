"""Probable mistakes in a catalogue's tags, stored in its folder until a person has judged them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import scipy.sparse as sp

from visterm.core.checks import check_choice
from visterm.core.errors import CorruptFileError, StorageError
from visterm.core.progress import SILENT, Progress
from visterm.core.vocabulary import Vocabulary, tag_key
from visterm.core.wording import count_of
from visterm.core.writing import write_whole
from visterm.data.tag_tree import TagTree
from visterm.library.encoded_features import CatalogueFeatures
from visterm.library.training import judged_images
from visterm.store.catalogue import StoredCatalogue
from visterm.store.history import CatalogueJob
from visterm.tagging.mistakes import (
    KINDS,
    LIKELY,
    Mistake,
    UninformativeFeaturesError,
    deepest,
    mistakes_among,
    vocabulary_of,
)
from visterm.tagging.tagger import Tagger

MISTAKES_FILE = "mistakes.json"
MAX_STORED = 2000  # Maximum number of stored mistakes of each kind


def look_for_mistakes(
    tagger: Tagger, stored: StoredCatalogue, *, job_id: int | None = None, progress: Progress = SILENT
) -> int | None:
    """Find probable mistakes and store them; see `Catalogue.look_for_mistakes`."""
    if stored.folder is None:
        raise StorageError("A catalogue in memory has no features to learn from. Save it, and load it again.")
    with CatalogueJob(stored.jobs, "mistakes", job_id) as job:
        part = judged_images(tagger, stored, CatalogueFeatures(stored, tagger.encoder.fingerprint))
        vocabulary = vocabulary_of(part.tags, tagger)
        ids = [image.id for image in part.images]
        answers, current_tags, rejected = (
            look_up(ids) for look_up in (stored.tags.settled, stored.tags.held, stored.tags.rejected)
        )
        Y = vocabulary.encode(*([tags_of.get(i, []) for i in ids] for tags_of in (current_tags, rejected)))
        used_relations = [name for name in tagger.model.takes if name == "siblings"]  # not the tree: tags are completed
        relations = tagger.relations.restricted_to(vocabulary)
        side = relations.side_knowledge(vocabulary, used_relations, blocks=tagger.encoder.blocks)
        mistakes, note = [], ""
        try:
            mistakes = mistakes_among(
                tagger.model, vocabulary, list(map(str, ids)), part.X, Y, side=side,
                settled=vocabulary.encode([answers.get(i, []) for i in ids]), limit=MAX_STORED,
                answers=_answers(stored, ids, vocabulary), tree=None if tagger.tree is None else tagger.tree.words,
                progress=progress, stop=lambda: job.cancelled,
            )  # fmt: skip
        except UninformativeFeaturesError as error:
            note = str(error)
        if job.cancelled:
            return None
        entries = [[int(m.image), m.tag, m.kind, m.chance, m.low, m.high] for m in mistakes]
        write_whole(
            stored.folder / MISTAKES_FILE, json.dumps({"images": len(part), "mistakes": entries, "note": note}).encode()
        )
        n_missing = sum(mistake.kind == "missing" for mistake in mistakes)
        n_likely = sum((mistake.chance or 0) >= LIKELY for mistake in mistakes)
        job.message = note or (
            f"{count_of(len(mistakes), 'tag')} of {count_of(len(part), 'photo')} to check: {n_missing:,} possibly "
            f"missing, {len(mistakes) - n_missing:,} possibly wrong, {n_likely:,} with a chance of at least 0.5"
        )
        return len(mistakes)


def _answers(stored: StoredCatalogue, ids: Sequence[int], vocabulary: Vocabulary) -> list[sp.csr_array]:
    """Return people's answers about tags as a signed matrix for each kind of mistake."""
    lists: list[list[dict[int, list[str]]]] = [[{i: [] for i in ids} for _ in range(2)] for _ in KINDS]
    for image_id, tag, accepted, from_file in stored.tags.answers():
        if image_id in lists[0][0]:
            lists[not from_file][accepted == from_file][image_id].append(tag)
    return [vocabulary.encode(list(yes.values()), list(no.values())) for yes, no in lists]


def open_mistakes(
    stored: StoredCatalogue,
    limit: int = 100,
    *,
    kind: str | None = None,
    tag: str | None = None,
    tree: TagTree | None = None,
) -> list[Mistake] | None:
    """List the stored mistakes that nobody has judged yet, missing tags first; see `Catalogue.mistakes`."""
    if kind is not None:
        check_choice(kind, "kind", KINDS)
    if stored.folder is None or not (stored.folder / MISTAKES_FILE).is_file():
        return None
    entries, _ = _read(stored.folder / MISTAKES_FILE)
    ids = sorted({entry[0] for entry in entries})
    records = {record.id: record for record in stored.images.get_many(ids) if record.state == "here"}
    current_tags, settled = (
        {i: set(tags) for i, tags in look_up(ids).items()} for look_up in (stored.tags.held, stored.tags.settled)
    )
    rejected = {} if tree is None else stored.tags.rejected(ids)
    implied = {} if tree is None else {i: tree.follows(current_tags.get(i, ()), rejected.get(i, ())) for i in ids}
    key = None if tag is None else tag_key(tag)
    mistakes: list[Mistake] = []

    for image_id, name, mistake_kind, chance, low, high in entries:
        is_tagged = name in current_tags.get(image_id, ())
        if (
            image_id in records
            and is_tagged == (mistake_kind == "wrong")
            and name not in settled.get(image_id, ())
            and not (mistake_kind == "missing" and tag_key(name) in implied.get(image_id, ()))
            and kind in (None, mistake_kind)
            and key in (None, tag_key(name))
        ):
            mistakes.append(Mistake(records[image_id].name, name, mistake_kind, chance, low, high, image_id))
    return (mistakes if tree is None else deepest(mistakes, tree))[:limit]


def why_no_mistakes(stored: StoredCatalogue) -> str:
    """Return why no mistakes could be found in a catalogue; empty if they could, or nobody has looked for them."""
    file = None if stored.folder is None else stored.folder / MISTAKES_FILE
    return "" if file is None or not file.is_file() else _read(file)[1]


def _read(file: Path) -> tuple[list[list[Any]], str]:
    """Return the entries of the file, and why mistakes could not be found, or ""."""
    entry_types = [[int, str, str, *[number] * 3] for number in (float, type(None))]
    try:
        content = json.loads(file.read_bytes())
        entries: list[list[Any]] = content["mistakes"]
        if not all(isinstance(e, list) and [*map(type, e)] in entry_types and e[2] in KINDS for e in entries):
            raise ValueError("an entry is not a mistake")
        note = str(content.get("note", ""))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CorruptFileError(
            f"{file} is damaged: {error}. Remove it, and look for mistakes again (visterm mistakes {file.parent})."
        ) from None
    return entries, note
