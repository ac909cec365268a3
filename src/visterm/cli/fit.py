"""`visterm fit`: learn from tagged photos and write a run."""

from __future__ import annotations

from collections.abc import Mapping
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from visterm.cli import cleaning, options
from visterm.cli.asked import queries_learned, queries_left_out
from visterm.cli.fit_catalogue import CatalogueToLearn, Full, fit_catalogue
from visterm.cli.fit_relations import relations_to_learn, tell_where_senses_are
from visterm.cli.fit_streamed import Memory, fit_and_save, leave_with, one_or_features, planned
from visterm.cli.output import say
from visterm.cli.progress import Bars
from visterm.cli.relation_options import (
    Inherit,
    PartOf,
    TagSynsets,
    WordNetSource,
    check_relation_options,
    with_wordnet,
)
from visterm.cli.seconds import seconds_of
from visterm.cli.tried import show_tried
from visterm.core.errors import UserError
from visterm.core.tables import MODELS

if TYPE_CHECKING:
    from visterm.core.executor import Executor

EXAMPLES = (
    "Examples:  visterm fit photos --tags tags.csv -o run   ·   visterm fit photos -o run --min-count 3   ·   "
    "visterm fit photos --tags tags.csv -o run --encoder onnx:net.onnx --encoder-set output=features --model knn   ·   "
    "visterm fit --tags pairs.csv --encoder ids -o run   ·   "
    "visterm fit photos --queries clicks.csv --model pamir -o run   ·   "
    "visterm fit photos --tags tags.csv --model objects_and_parts --part-of part_of.csv -o run   ·   "
    "visterm fit photos --tags tags.csv --model sampled_tagger --word-vectors sentences -o run   ·   "
    "visterm fit features --tags tags.csv --model sampled_tagger --ray HEAD:6379 -o run   ·   "
    "visterm fit --catalogue catalogue"
)


def fit(
    context: typer.Context,
    images: options.ImagesOrSeveral = None,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="The run to write: a folder.", show_default=False)
    ] = None,
    catalogue: CatalogueToLearn = None,
    full: Full = False,
    tags: options.TagFile = "auto",
    queries: Annotated[
        Path | None,
        typer.Option(
            help="Learn from queries in place of tags: CSV, TSV or JSON lines with the columns query, image and, "
            "unless every line is relevant, relevance (or clicks). Without --tags all their words are learned, with it "
            "those that are tags.",
            show_default=False,
        ),
    ] = None,
    idf: Annotated[
        Path | None,
        typer.Option(
            help="A text file, a text each line: words of queries weigh by how few of its texts have them [default: by "
            "how few training images do].",
            show_default=False,
        ),
    ] = None,
    encoder: options.EncoderName = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="What learns: a name from `visterm models` [default: auto; wsabie for images known by number].",
            show_default=False,
        ),
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="A setting of the model, NAME=VALUE; repeat for more.")
    ] = None,
    encoder_set: Annotated[
        list[str] | None, typer.Option("--encoder-set", help="A setting of the encoder, NAME=VALUE.")
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(
            help="Time for the models that --model auto tries, such as 90s, 2m or 1h [default: no limit].",
            show_default=False,
        ),
    ] = None,
    split: Annotated[
        str | None,
        typer.Option(
            help="Learn from these rows only [default: train, if the tag file has splits].", show_default=False
        ),
    ] = None,
    valid: Annotated[
        float | None,
        typer.Option(
            help="Share of the rows held out to choose when to stop; 0 for none [default: 0.1].",
            show_default=False,
            callback=options.check_share,
        ),
    ] = None,
    calibration: Annotated[
        bool,
        typer.Option(
            "--calibration/--no-calibration",
            help="Learn from held-out images how likely a score makes a tag; takes one more fit where a model holds "
            "none out.",
        ),
    ] = True,
    part_of: PartOf = None,
    isa: Annotated[
        str | None,
        typer.Option(
            "--isa",
            help="Which tags are kinds of what, for `visterm search --expand siblings`: a CSV of child,parent; "
            "WordNet's folder; or 'wordnet' [default: the WordNet of --part-of].",
            show_default=False,
            metavar="SOURCE",
        ),
    ] = None,
    wordnet: WordNetSource = None,
    tag_synsets: TagSynsets = None,
    inherit: Inherit = None,
    aliases: cleaning.Aliases = None,
    stop_tags: cleaning.StopTags = None,
    word_vectors: Annotated[
        str | None,
        typer.Option(
            "--word-vectors",
            help="Where sampled_tagger and its kin start from, so that searches find words that are no tags: a file "
            "(GloVe, word2vec, fastText .vec, safetensors), sentences (extra text), or, for tags only, learned or "
            "learned:skipgram.",
            show_default=False,
            metavar="SOURCE",
        ),
    ] = None,
    min_count: Annotated[int, typer.Option(min=1, help="Leave out tags of fewer images.")] = 1,
    max_share: cleaning.MaxShare = None,
    per_user: cleaning.PerUser = None,
    memory: Memory = None,
    device: options.Device = None,
    seed: Annotated[int, typer.Option(min=0, help="Same seed, same photos: same run.")] = 0,
    jobs: options.Jobs = None,
    ray: options.Ray = None,
    image_column: options.ImageColumn = None,
    tags_column: options.TagsColumn = None,
    user_column: cleaning.UserColumn = None,
    separator: options.Separator = None,
    json: options.Json = False,
) -> None:
    """Learn a library's tags from photos that have them, and write a run.

    With a split column the rows of the split "train" are learned from; the exit code is 3 if images were skipped.
    """
    if catalogue is not None:
        fit_catalogue(context, catalogue, full=full, min_count=min_count, jobs=jobs, json=json)
        return
    if full:
        raise UserError("--full is for --catalogue: a fit of a new run learns all anyway. Leave it out.")
    if out is None:
        raise UserError("Where shall the run be? Name a folder: -o RUN; or a catalogue to learn from: --catalogue.")
    from visterm.core.persist import check_target
    from visterm.features.training_rows import NONE_HELD_OUT, not_learned, read_corpus
    from visterm.library.info import TRIED, describe
    from visterm.tagging.device import with_device
    from visterm.tagging.start_words import check_start_words, told_of, told_of_random
    from visterm.tagging.tagger import Tagger

    check_target(out, "run")
    model_params = options.settings(set_ or [], "--set")
    if budget is not None:
        model_params = _with_budget(model_params, model or "auto", budget)
    encoder_params = options.settings(encoder_set or [], "--encoder-set")
    if device is not None:
        model_params, encoder_params = with_device(
            device, model=model, encoder=encoder, model_params=model_params, encoder_params=encoder_params
        )
    tagger = Tagger(
        encoder=encoder,
        model=model,
        encoder_params=encoder_params,
        model_params=model_params,
        min_count=min_count,
        seed=seed,
        n_jobs=jobs,
    )
    tagger.check_settings(valid)
    executor = options.executor_of(ray, jobs)
    elsewhere = _learns_elsewhere(executor, tagger.model, {"--queries": queries})
    if "word_vectors" in model_params:
        raise UserError("Word vectors are given by --word-vectors FILE, sentences or learned, and not by --set.")
    if word_vectors is not None:
        check_start_words(tagger.model, word_vectors)
        if queries is not None:
            raise UserError("Word vectors are of tags, and queries are learned from. Leave --word-vectors out.")
    part_of, isa = with_wordnet(wordnet, part_of, isa)
    check_relation_options(part_of, isa, tag_synsets, inherit)
    cleaned = cleaning.read_cleaning(aliases, stop_tags, max_share, per_user, user_column)
    if cleaned.prunes and queries is not None:
        raise UserError(
            "--stop-tags, --max-share and --per-user leave out tags, and queries are learned from. Leave them out."
        )
    meant = cleaned.aliases
    columns: dict[str, Any] = {
        "image_column": image_column, "tags_column": tags_column, "user_column": user_column, "separator": separator
    }  # fmt: skip
    photos: Any = one_or_features(images)
    plan = planned(photos, memory, shared=executor.remote and not elsewhere, learner=tagger.model)
    if plan is not None:
        unusable = {
            "--queries": queries, "--part-of": part_of, "--isa": isa, "--word-vectors": word_vectors,
            "--stop-tags": stop_tags, "--max-share": max_share, "--per-user": per_user,
        }  # fmt: skip
        fit_and_save(
            tagger, photos, tags, out, plan, unusable, seed=seed, valid=valid, split=split, idf=idf, aliases=meant,
            calibration=calibration, image_column=image_column, tags_column=tags_column, separator=separator,
            executor=executor,
            json=json,
        )  # fmt: skip
    of_tags = queries is None or tags != "auto"
    if not of_tags and (part_of is not None or isa is not None):
        raise UserError(
            "Relations are between tags, and only queries are given. Add --tags, or leave the relations out."
        )
    lines: Any = None
    if queries is not None:
        from visterm.data.query_files import read_query_file
        from visterm.tagging.query_corpus import query_corpus
        from visterm.tagging.query_rows import check_learns_queries

        check_learns_queries(tagger.model)
        lines = read_query_file(queries)
    if of_tags:
        corpus = read_corpus(tagger.encoder, photos, tags, **columns)
    else:
        corpus, lines = query_corpus(tagger.encoder, photos, lines)
    for warning in corpus.warnings():
        say(warning)
    if split is not None:
        corpus = corpus.select(split).without_splits()
    for line in not_learned(corpus):
        say(line)
    corpus, pruned = cleaned.prune(corpus)
    relations = relations_to_learn(tagger, corpus, part_of, isa, tag_synsets, inherit, meant)
    how: dict[str, Any] = {
        "valid": valid, "idf": idf, "relations": relations, "aliases": meant, "calibrate": calibration
    }  # fmt: skip
    if queries is None:
        there: dict[str, Any] = {}
        if elsewhere:
            there = {"executor": executor, "work": out.absolute().with_name(f".{out.name}.workers")}
        tagger.fit(corpus, **how, word_vectors=word_vectors, **there, progress=Bars())
    else:
        tagger.fit_queries(corpus, lines, tags if of_tags else None, **how, progress=Bars())
    tagger.facts |= pruned
    tagger.save(out)
    if elsewhere:
        _say_if_learned_here(tagger.facts)
    tell_where_senses_are(relations, out)
    facts = tagger.facts
    measures = [entry.get(name) for entry in getattr(tagger.model, "history_", []) for name in ("map", "mean_rank")]
    judged = any(measure is not None for measure in measures)
    if {"epochs", "valid_share"} <= set(tagger.model.get_params(deep=False)) and valid != 0 and not judged:
        say(NONE_HELD_OUT)
    if hasattr(tagger.model, "report_"):
        show_tried(describe(out)[TRIED])
    if word_vectors is not None:
        say(told_of(tagger.words, facts["tags"]))
    elif at_random := told_of_random(tagger.model):
        say(at_random)
    cleaned.tell_of_aliases(tagger.vocabulary.aliases)
    if queries is not None:
        for line in queries_left_out(facts):
            say(line)
    leave_with(tagger, out, "" if queries is None else f" and {queries_learned(facts)}", json=json)


def _with_budget(params: dict[str, Any], model: str, budget: str) -> dict[str, Any]:
    """Add the seconds of --budget to the settings of a model that has such a setting."""
    if "budget" not in signature(MODELS.load(model)).parameters:
        raise UserError(f"The model '{model}' has no budget of time. Leave --budget out, or fit with --model auto.")
    if "budget" in params:
        raise UserError("The budget is given twice: by --budget and by --set budget. Leave one out.")
    return {**params, "budget": seconds_of(budget, "--budget")}


def _learns_elsewhere(executor: Executor, model: Any, unusable: Mapping[str, Any]) -> bool:
    """Check that a model can learn on the executor's machines; False where there are none, or it streams features.

    A model of the ranking family learns there from features in shards, see `fit_and_save`. `unusable` are options and
    their values that cannot be used there: any that is given is an error.
    """
    if not executor.remote or getattr(model, "learns_together", False):
        return False
    from visterm.tagging.deep_fit_together import check_fits_together

    check_fits_together(model)
    if given := [option for option, value in unusable.items() if value is not None]:
        raise UserError(f"{given[0]} is learned from in one process. Leave {given[0]} or --ray out.")
    return True


def _say_if_learned_here(facts: Mapping[str, Any]) -> None:
    """Say so where other machines were there to learn, and one process has done it all."""
    if "workers" not in facts:
        say("All images are in one batch, so that one process learned from them: no engine was started.")
