"""`visterm tags` and `neighbours`: the tags of a run, which may mean the same, words added, and the nearest to one."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from visterm.cli import options
from visterm.cli.output import emit, say, table
from visterm.cli.progress import Bars
from visterm.core.errors import UserError
from visterm.core.wording import count_of

if TYPE_CHECKING:
    from visterm.tagging.tagger import Tagger

EXAMPLES = (
    "Examples:  visterm tags run   ·   visterm tags run --suggest --out aliases.csv   ·   "
    "visterm tags run photos --tags tags.csv --suggest --out aliases.csv   ·   "
    "then, corrected: visterm fit photos --tags tags.csv --aliases aliases.csv -o cleaned   ·   "
    "visterm tags run --add words.txt"
)


def tags(
    run: Annotated[
        Path,
        typer.Argument(
            help="A run: the folder that `visterm fit` wrote; to list tags or add words, a catalogue too.",
            show_default=False,
        ),
    ],
    images: options.ImagesOrNone = None,
    suggest: Annotated[
        bool,
        options.output_option(
            "--suggest", help="Suggest which tags mean the same, and why, in place of listing the tags."
        ),
    ] = False,
    tag_file: options.TagFile = "auto",
    out: Annotated[
        Path | None,
        options.output_option(
            "--out",
            help="Write the suggestions to a CSV of alias,tag,reason: take out what is wrong, then give it to "
            "`visterm fit --aliases`. The run's aliases are written, too.",
        ),
    ] = None,
    add: Annotated[
        Path | None,
        options.input_option(
            "--add",
            help="A text file, a word or phrase a line: add them to the dictionary, without training images, of a run "
            "fitted with --word-vectors. `visterm search` finds them; `visterm annotate --added` gives them.",
        ),
    ] = None,
    word_vectors: Annotated[
        Path | None,
        options.input_option("--word-vectors", help="With --add: where the run's file of word vectors is now."),
    ] = None,
    json: options.Json = False,
    jobs: options.Jobs = None,
    image_column: options.ImageColumn = None,
    tags_column: options.TagsColumn = None,
    separator: options.Separator = None,
) -> None:
    """List the tags of a run with their images and aliases, suggest which of them mean the same, or add words.

    Suggestions are by spelling (hyphens, accents, plurals, slips), and where that is not sure by the tags' vectors.
    With IMAGES and their tags also by these: tags of one meaning are on photos alike, but people write one or the
    other.
    """
    from visterm.library.dictionary import open_dictionary

    if word_vectors is not None and add is None:
        raise UserError(
            "--word-vectors says where words to be added have their vectors. Add --add FILE, or leave it out."
        )
    if add is not None:
        if suggest:
            raise UserError("--add and --suggest are two jobs. Leave one out.")
        _add(run, add, word_vectors, json=json, jobs=jobs)
        return
    if not suggest and (images is not None or tag_file != "auto" or out is not None):
        raise UserError("IMAGES, --tags and --out are for suggestions. Add --suggest, or leave them out.")
    tagger = open_dictionary(run, n_jobs=jobs)
    if not suggest:
        _list_tags(tagger, json=json)
        return
    from visterm.data.relation_files import Alias, write_aliases
    from visterm.features.training_rows import read_corpus
    from visterm.tagging.tag_groups import suggest_aliases, tag_vectors

    corpus = None
    if images is not None or tag_file != "auto":
        corpus = read_corpus(
            tagger.encoder, images, tag_file, image_column=image_column, tags_column=tags_column, separator=separator
        )
        for warning in corpus.remarks:
            say(warning)
    elif tag_vectors(tagger) is None:
        say("The model has no vectors of tags, so only sure spellings are suggested. Give IMAGES and --tags for more.")
    found = suggest_aliases(tagger, corpus, progress=Bars())
    if out is not None:
        kept = [Alias(alias, tag, "alias of the run") for alias, tag in tagger.vocabulary.aliases.items()]
        write_aliases(out, [*kept, *found])
        n_tags = len({alias.tag for alias in found})
        say(
            f"{count_of(len(found), 'spelling')} of {count_of(n_tags, 'tag')} suggested in {out}; "
            "take out what is wrong."
        )
    if json:
        for alias in found:
            emit(alias._asdict())
    elif out is None:
        table([list(alias) for alias in found], ["alias", "tag", "reason"])


def neighbours(
    run: options.Run,
    tag: Annotated[str, typer.Argument(help="A tag of the run.", show_default=False)],
    k: Annotated[int, typer.Option("-k", min=0, help="How many; 0 for all.")] = 10,
    json: options.Json = False,
) -> None:
    """Show the tags nearest to a tag, by the cosine of their vectors: synonyms, spellings, what appears together."""
    from visterm.tagging.tagger import Tagger

    near = Tagger.load(run).neighbours(tag, k)
    if json:
        for item in near:
            emit(item._asdict())
    else:
        table([[item.tag, f"{item.score:.3f}"] for item in near], ["tag", "cosine"])


def _list_tags(tagger: Tagger, *, json: bool) -> None:
    vocabulary = tagger.vocabulary
    aliases: defaultdict[str, list[str]] = defaultdict(list)
    for alias, tag in vocabulary.aliases.items():
        aliases[tag].append(alias)
    if json:
        for tag, count in zip(vocabulary, vocabulary.counts.tolist(), strict=True):
            emit({"tag": tag, "images": count, "aliases": aliases[tag]})
        for word in tagger.words.added:
            emit({"tag": word, "images": 0, "aliases": [], "trained": False})
        return
    rows = zip(vocabulary, vocabulary.counts.tolist(), strict=True)
    table(
        [[tag, f"{count:,}", ", ".join(aliases[tag])] for tag, count in rows]
        + [[word, "0", "(no training images)"] for word in tagger.words.added],
        ["tag", "images", "aliases"],
    )


def _add(run: Path, file: Path, word_vectors: Path | None, *, json: bool, jobs: int | None) -> None:
    from visterm.data.text_files import read_words
    from visterm.library.dictionary import add_to_dictionary

    done = add_to_dictionary(run, read_words(file), file=word_vectors, n_jobs=jobs)
    if json:
        emit(done._asdict())
    if done.there:
        say(f"In the dictionary already: {', '.join(done.there)}")
    if done.without:
        say(f"Without a vector, not added: {', '.join(done.without)}")
    say(f"Added {count_of(len(done.added), 'word')} without training images to {run}")
