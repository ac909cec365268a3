"""The demo: draw a library, learn its tags, annotate and search images never seen, beside the baselines."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from visterm import Catalogue, Tagger
from visterm.core.persist import FORMAT, FORMAT_KEY, MANIFEST, check_target, write_json
from visterm.core.progress import SILENT, Progress
from visterm.core.types import Matrix, Tag
from visterm.core.vocabulary import Vocabulary
from visterm.core.writing import whole_file
from visterm.data import Corpus
from visterm.evaluation import Cell, Report, Shown
from visterm.features.training_rows import encode_corpus, training_rows
from visterm.metrics import average_precisions, evaluate
from visterm.models import MODELS
from visterm.tagging import make_model
from visterm_research.scenes import GROUPS, NOUNS, DrawnLibrary, Query, draw_library
from visterm_research.scenes.things import THINGS

N_BY_LENGTH = {3: 1, 2: 4, 1: 2}
"""How many searches of three, two and one words are shown, beside one that excludes a word."""
FEWEST = 8  # Right pictures from which on a search is shown: they fill the row
COMMON = 0.3  # Words of more than this share of the pictures ("sky") are neither searched by nor compared with others
FEWEST_SPELT = 3  # Training pictures from which on a spelling counts as one
BASELINES = ("knn", "ridge", "prior")
METRICS = ("map", "p@5", "r@5", "n_plus@5", "word_map")
HEADER = ("model", "MAP", "p@5", "r@5", "tags recalled", "one-word MAP", "query MAP")
N_PICTURES = 24
N_CHIPS = 6
N_FOUND = FEWEST
N_TAGS = 12
N_BESIDE = 8
MIN_COUNT = 2  # Tags that fewer training pictures have are left out
KIND = "demo"


class DemoResult(NamedTuple):
    """The table that the demo prints, and where its report lies."""

    header: Sequence[str]
    rows: list[list[str]]
    report: Path


class _Test(NamedTuple):
    """Images never seen: features, tags given, true tags, all that is seen on them, and the queries they answer."""

    corpus: Corpus
    X: Matrix
    Y: sp.csr_array
    true_tags: list[set[str]]
    seen: list[frozenset[str]]
    queries: list[Query]


def run_demo(
    out: str | os.PathLike[str],
    *,
    n_scenes: int = 2000,
    seed: int = 0,
    n_jobs: int | None = None,
    progress: Progress = SILENT,
) -> DemoResult:
    """Draw a library, fit a run, index a catalogue and write a report, all into one folder.

    It then holds ``library/``, ``run/``, ``catalogue/`` and ``report.html``. The same seed gives the same pictures and
    figures. An empty folder and an earlier demo are written over; raises StorageError if something else lies at `out`.
    """
    folder = Path(out)
    check_target(folder, KIND)
    folder.mkdir(parents=True, exist_ok=True)
    with whole_file(folder / MANIFEST) as temporary:  # half of it, and the next demo would not take the folder
        write_json(temporary, {"kind": KIND, FORMAT_KEY: FORMAT, "n_scenes": n_scenes, "seed": seed, "sha256": {}})
    library = draw_library(folder / "library", n_scenes=n_scenes, seed=seed, n_jobs=n_jobs, progress=progress)
    corpus = Corpus.read(library.images, library.tags_file)
    tagger = Tagger(model="wsabie", seed=seed, n_jobs=n_jobs)
    rows = training_rows(tagger.encoder, corpus, min_count=MIN_COUNT, progress=progress)
    tagger.learn(rows, calibrate=True, progress=progress)
    tagger.save(folder / "run", overwrite=True)
    taggers = {MODELS.name_of(tagger.model): tagger}
    for name in BASELINES:
        model = make_model(name, {}, {"random_state": seed, "n_jobs": n_jobs})
        taggers[name] = Tagger.from_parts(tagger.encoder, model, rows.vocabulary).learn(rows, progress=progress)
    test = _test_images(tagger, corpus, library, progress)
    table = [[name, *_figures(tagger, test)] for name, tagger in taggers.items()]
    catalogue = Catalogue(tagger).add(test.corpus, progress=progress)
    catalogue.save(folder / "catalogue")
    report = folder / "report.html"
    _report(tagger, catalogue, test, table, len(rows.vocabulary)).write(report)
    return DemoResult(HEADER, table, report)


def _test_images(tagger: Tagger, corpus: Corpus, library: DrawnLibrary, progress: Progress) -> _Test:
    test = corpus.select("test")
    X, Y, _ = encode_corpus(tagger.encoder, test, tagger.vocabulary, progress)
    pictures = {picture.file_name: picture for picture in library.pictures}
    shown = [pictures[name] for name in test.names]
    queries = [
        query
        for query in library.queries
        if query.split == "test" and all(word in tagger.vocabulary for word in query.words)
    ]
    return _Test(test, X, Y, [set(picture.tags) for picture in shown], [picture.seen for picture in shown], queries)


def _figures(tagger: Tagger, test: _Test) -> list[str]:
    values = evaluate(lambda: tagger.model.score_blocks(test.X), test.Y, list(METRICS))
    U = tagger.model.image_rows(test.X)
    Q = sp.vstack([tagger.query_weights(list(query.words)).weights for query in test.queries], format="csr")
    scores: Any = tagger.model.query_rows(Q) @ U.T
    scores = scores.toarray() if sp.issparse(scores) else scores
    relevant = np.array([[tags.issuperset(query.words) for tags in test.true_tags] for query in test.queries])
    found = float(np.nanmean(average_precisions(np.asarray(scores), relevant)))
    return [f"{values[name]:.0f}" if name.startswith("n_plus") else f"{values[name]:.3f}" for name in METRICS] + [
        f"{found:.3f}"
    ]


def _report(tagger: Tagger, catalogue: Catalogue, test: _Test, table: list[list[str]], n_tags: int) -> Report:
    report = Report(
        "What visterm learned from a drawn photo library",
        f"{n_tags:,} tags that at least two pictures have, as people wrote them: synonyms, misspellings, three "
        f"languages, some missing, a few wrong. Everything below is on {len(test.corpus):,} pictures that were never "
        "seen in training.",
    )
    report.section(
        "Beside the baselines",
        "Against the tags that people gave: MAP, p@5 and r@5 of the tags put on a picture, how many tags are right at "
        "least once, and MAP of the pictures put under one word. Against what is truly drawn: MAP of the pictures put "
        "under one to three words. The best of each column is marked.",
    )
    report.cells(HEADER, marked(table))
    report.section("Tags on new pictures", f"The {N_CHIPS} best tags of every {_step(test)}th picture.")
    report.legend("drawn in the picture, however it is spelt", "not drawn there")
    report.tagged(_annotated(tagger, test))
    report.section(
        "Searching by words",
        f"The {N_FOUND} best pictures under a few words. Outlined in green: it shows all of them, and none that the "
        "search leaves out. A rule chooses the searches; it does not look at what they find.",
    )
    pictures = dict(zip(test.corpus.names, zip(test.corpus.images, test.seen, strict=True), strict=True))
    for search in shown_searches(test.queries, test.seen):
        found = [pictures[hit.image] for hit in catalogue.search(search.words, N_FOUND).hits]
        n_right = sum(map(search.suits, test.seen))
        report.query(search.text, f"{n_right} of {len(test.corpus)} pictures are right")
        report.found("", [Shown(image, search.suits(seen)) for image, seen in found])
    report.section(
        "Tags that the model puts close together",
        "The nearest tags by their vectors, learned from pictures alone: other spellings, synonyms and languages, and "
        "things that are seen together. Shown are the tags that people write in most ways, without the most frequent.",
    )
    report.legend("means the same", "something else")
    tags = shown_tags(tagger.vocabulary, tagger.facts["images"], N_TAGS)
    report.parts.append(f"<dl>{''.join(_neighbours(tag, tagger.neighbours(tag, N_BESIDE)) for tag in tags)}</dl>")
    return report


def marked(table: list[list[str]]) -> list[list[Cell]]:
    """Return rows of names and numbers as cells; the largest number of each column is marked, ties all of them."""
    best = [max(map(float, column)) for column in list(zip(*table, strict=True))[1:]]
    return [
        [Cell(name), *(Cell(text, mark="best" * (float(text) == most)) for text, most in zip(row, best, strict=True))]
        for name, *row in table
    ]


def _neighbours(tag: str, near: Sequence[Any]) -> str:
    """Return a tag and those beside it as HTML; those that mean the same are marked."""
    chips = "".join(
        f'<span class="tag{" right" * (meaning_of(other.tag) == tag)}" title="score {other.score:.2f}">'
        f"{escape(other.tag)}</span>"
        for other in near
    )
    return f"<dt>{escape(tag)}</dt><dd>{chips}</dd>"


def _step(test: _Test) -> int:
    return max(1, len(test.corpus) // N_PICTURES)


def _annotated(tagger: Tagger, test: _Test) -> list[tuple[Shown, str, Sequence[Tag], set[int], Sequence[str]]]:
    """Put tags on pictures spread over the test images, and say which are true of anything that is seen there."""
    chosen = range(0, len(test.corpus), _step(test))[:N_PICTURES]
    annotated = tagger.annotate([test.corpus.images[i] for i in chosen], k=N_CHIPS).images
    return [
        (
            Shown(test.corpus.images[i]),
            "",
            item.tags,
            {n for n, tag in enumerate(item.tags) if meaning_of(tag.tag) in test.seen[i]},
            test.corpus.tags[i],
        )
        for i, item in zip(chosen, annotated, strict=True)
    ]


class Search(NamedTuple):
    """A search to show: the words that pictures must show, and those that they must not."""

    required: tuple[str, ...]
    excluded: tuple[str, ...] = ()

    @property
    def words(self) -> list[str]:
        """The words as `Catalogue.search` takes them."""
        return [*self.required, *(f"-{word}" for word in self.excluded)]

    @property
    def text(self) -> str:
        """The search as it is typed."""
        return " ".join(f'"{word}"' if " " in word else word for word in self.words)

    def suits(self, seen: Collection[str]) -> bool:
        """Return whether a picture on which `seen` is to be seen is a right answer."""
        return all(word in seen for word in self.required) and not any(word in seen for word in self.excluded)


def shown_searches(queries: Sequence[Query], seen: Sequence[Collection[str]]) -> list[Search]:
    """Choose searches that the eye can check, from the frequent to the middling, no word twice.

    Their words name things, kinds, land, water or sky (no parts, colours, hours or weather), at least one of them a
    thing; `FEWEST` pictures or more are right, and no word is true of more than the share `COMMON` of the pictures. Of
    each number of words, the choice is spread evenly over the upper half of the ranks. The word that one search
    excludes is one that is often beside the word that it looks for. `seen` is what is to be seen on each picture.
    """
    common = {word for word in NOUNS if sum(word in one for one in seen) > COMMON * len(seen)}
    searches = [
        Search(query.words)
        for query in queries
        if NOUNS.issuperset(query.words) and not common & set(query.words) and THINGS.keys() & set(query.words)
    ]
    shown: list[Search] = []
    for length, n in N_BY_LENGTH.items():
        shown += _spread([search for search in searches if len(search.required) == length], n, seen, shown)
    shown.sort(key=lambda search: len(search.required))
    return shown + _one_without([search for search in searches if len(search.required) == 2], seen, shown)


def shown_tags(vocabulary: Vocabulary, n_images: int, n: int) -> list[str]:
    """Choose the `n` tags that people write in most ways, each way on `FEWEST_SPELT` training pictures or more.

    Tags of more than the share `COMMON` of the pictures, in all spellings, are left out. Ties go to the tag whose other
    spellings more pictures have.
    """
    ways: Counter[str] = Counter()
    images: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for tag, count in zip(vocabulary.tags, vocabulary.counts.tolist(), strict=True):
        meaning = meaning_of(tag)
        total[meaning] += count
        if tag.casefold() != meaning and count >= FEWEST_SPELT:
            ways[meaning] += 1
            images[meaning] += count
    found = [meaning for meaning in ways if meaning in vocabulary and total[meaning] <= COMMON * n_images]
    return sorted(found, key=lambda meaning: (-ways[meaning], -images[meaning], meaning))[:n]


def meaning_of(tag: str) -> str:
    """Return the true tag that a spelling stands for, or the tag itself."""
    return GROUPS.get(tag.casefold(), tag)


def _spread(
    searches: Sequence[Search], n: int, seen: Sequence[Collection[str]], shown: Sequence[Search]
) -> list[Search]:
    """Return `n` searches spread evenly over the upper half of the ranks, without words that are shown already."""
    ranked = [search for search in _ranked(searches, seen) if _n_right(search, seen) >= FEWEST]
    chosen: list[Search] = []
    for i in range(n):
        left = ranked[i * len(ranked) // (2 * n) :]
        chosen += _unused(left, [*shown, *chosen])[:1]
    return chosen


def _one_without(pairs: Sequence[Search], seen: Sequence[Collection[str]], shown: Sequence[Search]) -> list[Search]:
    """Turn the pair that is seen together most often into a search for a thing without the other word."""
    turned = []
    for pair in _unused(_ranked(pairs, seen), shown):
        required, excluded = sorted(pair.required, key=lambda word: word not in THINGS)
        turned.append(Search((required,), (excluded,)))
    return [search for search in turned if _n_right(search, seen) >= FEWEST][:1]


def _ranked(searches: Sequence[Search], seen: Sequence[Collection[str]]) -> list[Search]:
    return sorted(searches, key=lambda search: (-_n_right(search, seen), search))


def _n_right(search: Search, seen: Sequence[Collection[str]]) -> int:
    return sum(map(search.suits, seen))


def _unused(searches: Sequence[Search], shown: Sequence[Search]) -> list[Search]:
    used = {word for search in shown for word in (*search.required, *search.excluded)}
    return [search for search in searches if not used.intersection(search.required)]
