"""`visterm tags`: list the tags of a run, suggest aliases, show similar tags and parts, and add words."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

import visterm
from visterm.cli import options
from visterm.cli.command_line import imported_when_used
from visterm.cli.output import Bars, check_tags_read, emit, say, say_not_read, show_all
from visterm.core.errors import UserError
from visterm.core.wording import count_of

with imported_when_used():
    from visterm.data import tag_rules as rule_files
    from visterm.data import text_files
    from visterm.features import training_rows
    from visterm.learning import relations as relation_sources
    from visterm.library import dictionary
    from visterm.tagging import part_relations, tag_groups

EXAMPLES = (
    ("visterm tags run", "list all tags"),
    ("visterm tags run --suggest -o tags.toml", "suggest aliases: a draft of tag rules for fit"),
    ("visterm tags run photos --tags tags.csv --suggest -o tags.toml", "and by the photos"),
    ("visterm tags run --like dolphin", "tags similar to dolphin"),
    ("visterm tags run --parts predicted", "which tags may be parts of which"),
    ("visterm tags run --add words.txt", "add words that aren't tags"),
)
PREDICTED, KNOWN = "predicted", "known"


def tags(
    run: Annotated[
        Path, typer.Argument(help="A run; to list tags or add words, also a catalogue.", show_default=False)
    ],
    images: options.ImagesOrNone = None,
    suggest: Annotated[
        bool, options.output_option("--suggest", help="Suggest which tags mean the same, and why.")
    ] = False,
    tag_file: options.TagFile = "auto",
    tag_rules: options.TagRulesFile = None,
    out: Annotated[
        Path | None,
        options.out_option(
            help="Write the suggestions as a draft of tag rules: delete wrong lines, then pass it to `visterm fit "
            "--tag-rules`. With --parts: a CSV that the tag rule part_of takes."
        ),
    ] = None,
    like: Annotated[
        str | None, options.which_option(help="Show the tags most similar to this one.", metavar="TAG")
    ] = None,
    parts: Annotated[
        str | None,
        options.which_option(
            help="Show which tags the run says are parts of which: 'predicted' (not yet known) or 'known'.",
            metavar="WHICH",
        ),
    ] = None,
    k: Annotated[
        int | None, options.which_option("-k", min=0, help="With --like or --parts: number; 0 for all [default: 20].")
    ] = None,
    add: Annotated[
        Path | None,
        options.input_option(
            help="Add the words or phrases in this text file, one per line, to a run with word vectors, so that "
            "searches find them.",
            metavar="FILE",
        ),
    ] = None,
    json: options.Json = False,
) -> None:
    """List the tags of a run, suggest aliases, or add words.

    Suggestions compare spellings and vectors. With IMAGES and --tags they also find tags of the same meaning on
    similar photos.
    """
    flags = {"--suggest": suggest, "--like": like is not None, "--parts": parts is not None, "--add": add is not None}
    if len(modes := [name for name, is_set in flags.items() if is_set]) > 1:
        raise UserError(
            f"{' and '.join(modes)} do not go together. Leave {'one' if len(modes) == 2 else 'all but one'} out."
        )

    if not suggest and (images is not None or tag_file != "auto"):
        raise UserError("IMAGES and --tags need --suggest. Add it, or leave them out.")
    if out is not None and not suggest and parts is None:
        raise UserError("-o needs --suggest or --parts. Add one, or leave it out.")
    options.may_replace(out)
    rules = rule_files.TagRules.of(tag_rules)
    if add is not None:
        _add_words(run, add, json=json)
    elif like is not None:
        _show_similar(run, like, 20 if k is None else k, json=json)
    elif parts is not None:
        _show_parts(run, parts, 20 if k is None else k, rules, out, json=json)
    elif suggest:
        _suggest_aliases(run, images, tag_file, rules, out, json=json)
    else:
        _list_tags(dictionary.open_dictionary(run), json=json)


def _suggest_aliases(
    run: Path, images: Path | None, tag_file: str, rules: rule_files.TagRules, out: Path | None, *, json: bool
) -> None:

    tagger = dictionary.open_dictionary(run)
    corpus = None
    if images is not None or tag_file != "auto":
        corpus = training_rows.read_corpus(tagger.encoder, images, tag_file, **rules.columns())
        for remark in corpus.remarks:
            say(remark)
        check_tags_read(corpus, rules, paths=tagger.tree is not None)
        say_not_read([] if images is None else [images])

    if tag_groups.tag_vectors(tagger) is not None:
        say(f"Meanings are compared by the tag vectors of {' and '.join(tagger.tags_compared_by)}.")
    elif corpus is None:
        say("The model has no tag vectors, so only certain spellings are suggested. Pass IMAGES and --tags for more.")

    suggestions = tag_groups.suggest_aliases(tagger, corpus, progress=Bars())
    if out is not None:
        aliases = [rule_files.Alias(alias, tag, "alias of the run") for alias, tag in tagger.vocabulary.aliases.items()]
        rule_files.write_draft(out, [*aliases, *suggestions])
        n_tags = len({alias.tag for alias in suggestions})
        say(
            f"{count_of(len(suggestions), 'spelling')} of {count_of(n_tags, 'tag')} suggested in {out}; "
            f"{'delete the lines that are wrong' if suggestions else 'no tags look the same'}."
        )
    objects = (alias._asdict() for alias in suggestions)
    show_all(objects, suggestions, ["alias", "tag", "reason"], json=json, out=out, empty_note="No suggestions.")


def _show_similar(run: Path, tag: str, k: int, *, json: bool) -> None:
    tagger = visterm.Tagger.load(run)
    neighbours, compared_by = tagger.neighbours(tag, k), tagger.tags_compared_by
    header = ["tag", f"similarity, by {' and '.join(compared_by)}"]
    rows = [[item.tag, f"{item.score:.3f}"] for item in neighbours]
    show_all(({**item._asdict(), "from": compared_by} for item in neighbours), rows, header, json=json)


def _show_parts(run: Path, which: str, k: int, rules: rule_files.TagRules, out: Path | None, *, json: bool) -> None:
    """Print which tags are parts of which, with the model's scores; relations in the tag rules count as known."""
    if which not in (PREDICTED, KNOWN):
        raise UserError(f"--parts is {which!r}; expected {PREDICTED} or {KNOWN}.")
    relation_sources.check_sources(replace(rules, isa=None))
    tagger = visterm.Tagger.load(run)
    rule_relations = relation_sources.WordRelations.read(tagger.vocabulary, part_of=rules.part_of)
    find_relations = part_relations.known_relations if which == KNOWN else part_relations.believed_relations
    relations = find_relations(tagger, k, rule_relations)
    if out is not None:
        part_relations.write_relations(out, relations)
        say(f"{count_of(len(relations), 'relation')} written to {out}")

    objects = (item._asdict() for item in relations)
    rows = [[item.part, item.whole, "-" if item.score is None else f"{item.score:.3f}"] for item in relations]
    empty_note = "The model predicts no relation that is not known."
    show_all(objects, rows, ["part", "whole", "score"], json=json, out=out, empty_note=empty_note)


def _list_tags(tagger: visterm.Tagger, *, json: bool) -> None:
    vocabulary = tagger.vocabulary
    objects, rows = [], []
    for tag, count in zip(vocabulary, vocabulary.counts.tolist(), strict=True):
        _, *aliases = vocabulary.spellings(tag)
        objects.append({"tag": tag, "images": count, "aliases": aliases})
        rows.append([tag, f"{count:,}", ", ".join(aliases)])
    for word in tagger.words.added:
        objects.append({"tag": word, "images": 0, "aliases": [], "trained": False})
        rows.append([word, "0", "(no training images)"])
    show_all(objects, rows, ["tag", "learned from", "aliases"], json=json)


def _add_words(run: Path, file: Path, *, json: bool) -> None:

    report = dictionary.add_to_dictionary(run, text_files.read_words(file))
    if json:
        emit(report._asdict())
    if report.known:
        say(f"In the dictionary already: {', '.join(report.known)}")
    if report.without_vector:
        say(f"Without a vector, not added: {', '.join(report.without_vector)}")
    say(f"Added {count_of(len(report.added), 'word')} without training images to {run}")
