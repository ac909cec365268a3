"""`visterm tags` and `neighbours`: the tags of a run, which may mean the same, words added, and the nearest to one."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from visterm.cli import options
from visterm.cli.completion import one_tag
from visterm.cli.output import check_tags_read, emit, say, say_not_read, table
from visterm.cli.progress import Bars
from visterm.core.errors import UserError
from visterm.core.wording import count_of

if TYPE_CHECKING:
    from visterm.tagging.tagger import Tagger

NEIGHBOURS_EXAMPLES = (("visterm neighbours run dolphin -k 5", "five tags similar to dolphin"),)
EXAMPLES = (
    ("visterm tags run", "list all tags"),
    ("visterm tags run --suggest --out aliases.csv", "suggest aliases by spelling"),
    ("visterm tags run photos --tags tags.csv --suggest --out aliases.csv", "and by the photos"),
    ("visterm tags run --add words.txt", "add words that aren't tags"),
)


def tags(
    run: Annotated[
        Path, typer.Argument(help="A run; to list tags or add words, also a catalogue.", show_default=False)
    ],
    images: options.ImagesOrNone = None,
    suggest: Annotated[
        bool, options.output_option("--suggest", help="Suggest which tags mean the same, and why.")
    ] = False,
    tag_file: options.TagFile = "auto",
    out: Annotated[
        Path | None,
        options.output_option(
            help="Write the suggestions and the run's aliases to a CSV: delete wrong lines, then pass it to "
            "`visterm fit --aliases`."
        ),
    ] = None,
    overwrite: options.Overwrite = False,
    add: Annotated[
        Path | None,
        options.input_option(
            help="Add the words or phrases in this text file, one per line, to a run with word vectors, so that "
            "searches find them."
        ),
    ] = None,
    word_vectors: Annotated[
        Path | None, options.input_option(help="With --add: the run's file of word vectors, if it has moved.")
    ] = None,
    json: options.Json = False,
    jobs: options.Jobs = None,
    image_column: options.ImageColumn = None,
    tags_column: options.TagsColumn = None,
    separator: options.Separator = None,
) -> None:
    """List the tags of a run, suggest aliases, or add words.

    Suggestions compare spellings and vectors. With IMAGES and --tags they also find tags of the same meaning on
    similar photos.
    """
    from visterm.library.dictionary import open_dictionary

    if word_vectors is not None and add is None:
        raise UserError("--word-vectors needs --add FILE, the words to add. Add it, or leave --word-vectors out.")
    if add is not None:
        if suggest:
            raise UserError("--add and --suggest do not go together. Leave one out.")
        _add(run, add, word_vectors, json=json, jobs=jobs)
        return
    if not suggest and (images is not None or tag_file != "auto" or out is not None):
        raise UserError("IMAGES, --tags and --out need --suggest. Add it, or leave them out.")
    options.may_replace(out, overwrite)
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
        for remark in corpus.remarks:
            say(remark)
        check_tags_read(corpus, separator, paths=tagger.tree is not None)
        say_not_read([] if images is None else [images])
    if tag_vectors(tagger) is not None:
        say(f"Meanings are compared by the tag vectors of {' and '.join(tagger.tags_compared_by)}.")
    elif corpus is None:
        say("The model has no tag vectors, so only certain spellings are suggested. Pass IMAGES and --tags for more.")
    found = suggest_aliases(tagger, corpus, progress=Bars())
    if out is not None:
        kept = [Alias(alias, tag, "alias of the run") for alias, tag in tagger.vocabulary.aliases.items()]
        write_aliases(out, [*kept, *found])
        n_tags = len({alias.tag for alias in found})
        say(
            f"{count_of(len(found), 'spelling')} of {count_of(n_tags, 'tag')} suggested in {out}; "
            f"{'delete the lines that are wrong' if found else 'no tags look the same'}."
        )
    if json:
        for alias in found:
            emit(alias._asdict())
    elif out is None and not found:
        say("No suggestions.")
    elif out is None:
        table([list(alias) for alias in found], ["alias", "tag", "reason"])


def neighbours(
    run: options.Run,
    tag: Annotated[str, options.argument(help="A tag of the run.", autocompletion=one_tag)],
    k: Annotated[int, typer.Option("-k", min=0, help="Tags to show; 0 for all.")] = 10,
    json: options.Json = False,
) -> None:
    """Show the tags that are most similar to a tag.

    Similarity is the cosine of the tags' vectors, at most 1.
    """
    from visterm.tagging.tagger import Tagger

    tagger = Tagger.load(run)
    near, compared_by = tagger.neighbours(tag, k), tagger.tags_compared_by
    if json:
        for item in near:
            emit({**item._asdict(), "from": compared_by})
    else:
        header = ["tag", f"similarity, by {' and '.join(compared_by)}"]
        table([[item.tag, f"{item.score:.3f}"] for item in near], header)


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
        ["tag", "photos", "aliases"],
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
