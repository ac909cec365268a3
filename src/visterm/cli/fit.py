"""`visterm fit`: learn from tagged photos, or anew from a catalogue."""

from __future__ import annotations

import time
from pathlib import Path

import typer

from visterm.cli import learning_options as learning
from visterm.cli import options
from visterm.cli.output import chosen_of, emit, exit_code, say, say_not_read, show_tried
from visterm.cli.progress import Bars, duration
from visterm.cli.runs import show_comparison
from visterm.core.errors import UserError
from visterm.core.wording import count_of

EXAMPLES = (
    ("visterm fit photos --tags tags.csv -o run", "learn from a tag file"),
    ("visterm fit photos -o run --min-count 3", "find the tags in the folder, without rare ones"),
    ("visterm fit photos --tags tags.csv -o run --encoder onnx:net.onnx --model knn", "your own network"),
    ("visterm fit --tags pairs.csv --encoder ids -o run", "images known only by number"),
    ("visterm fit photos --queries clicks.csv --model pamir -o run", "learn from a click log"),
    ("visterm fit --catalogue catalogue", "learn from corrections"),
)
WITH_A_CATALOGUE = {"catalogue", "full", "use_even_if_worse", "min_count", "jobs", "verbose", "json"}
"""Options that go with --catalogue: encoder and model are those of its run."""


def fit(
    context: typer.Context,
    images: options.ImagesOrSeveral = None,
    out: learning.Out = None,
    catalogue: learning.CatalogueToLearn = None,
    full: learning.Full = False,
    use_even_if_worse: learning.UseEvenIfWorse = False,
    overwrite: options.Overwrite = False,
    tags: options.TagFile = "auto",
    queries: learning.Queries = None,
    idf: learning.Idf = None,
    split: learning.Split = None,
    image_column: options.ImageColumn = None,
    tags_column: options.TagsColumn = None,
    separator: options.Separator = None,
    encoder: options.EncoderName = None,
    encoder_set: options.EncoderSettings = None,
    model: learning.ModelName = None,
    set_: learning.ModelSettings = None,
    budget: learning.Budget = None,
    valid: learning.Valid = None,
    calibration: learning.Calibration = True,
    word_vectors: learning.WordVectors = None,
    words: learning.Words = None,
    seed: options.Seed = 0,
    aliases: learning.Aliases = None,
    stop_tags: learning.StopTags = None,
    min_count: learning.MinCount = 1,
    max_share: learning.MaxShare = None,
    per_user: learning.PerUser = None,
    user_column: learning.UserColumn = None,
    tree: learning.Tree = None,
    part_of: learning.PartOf = None,
    isa: learning.IsA = None,
    wordnet: learning.WordNetFolder = None,
    tag_synsets: learning.TagSynsets = None,
    inherit: learning.Inherit = None,
    memory: options.Memory = None,
    device: options.Device = None,
    jobs: options.Jobs = None,
    verbose: options.Verbose = False,
    json: options.Json = False,
) -> None:
    """Learn tags from photos that have them.

    Writes a run, the folder that other commands tag and search with. The exit code is 3 if photos were skipped.
    """
    if catalogue is not None:
        fit_catalogue(context, catalogue)
        return
    if full:
        raise UserError("--full needs --catalogue; a new run learns everything anyway. Leave it out.")
    if use_even_if_worse:
        raise UserError("--use-even-if-worse needs --catalogue; a new run isn't compared with others. Leave it out.")
    if out is None:
        raise UserError("Missing output folder: pass -o RUN, or a catalogue to learn from: --catalogue.")
    overwrite = options.may_replace(out, overwrite, "run")
    from visterm.tagging.calibrating import RIGHT_OF_5, what_to_expect
    from visterm.tagging.fit_input import one_or_features
    from visterm.tagging.fit_request import FitRequest
    from visterm.tagging.fitting import fit_run
    from visterm.tagging.tagger import Tagger

    request = FitRequest(
        images=one_or_features(images), tags=None if queries is not None and tags == "auto" else tags, queries=queries,
        idf=idf, split=split, image_column=image_column, tags_column=tags_column, separator=separator,
        encoder=encoder, encoder_params=options.settings(encoder_set, "--encoder-set"), model=model, valid=valid,
        model_params=options.settings(set_, "--set"), budget=options.seconds_of(budget, "--budget"), seed=seed,
        calibrate=calibration, word_vectors=word_vectors, words=words or (), aliases=aliases, stop_tags=stop_tags or (),
        min_count=min_count, max_share=max_share, per_user=per_user, user_column=user_column, part_of=part_of, isa=isa,
        wordnet=wordnet, tag_synsets=tag_synsets, inherit=inherit, tree=tree, memory=options.bytes_of(memory),
        device=device, n_jobs=jobs, out=out, overwrite=overwrite,
    )  # fmt: skip
    began = time.monotonic()
    tagger = Tagger.of(request)
    if device is not None:
        from visterm.tagging.part_settings import device_lines

        for line in device_lines(tagger.encoder):
            say(line)
    fit_run(tagger, request, say=say, progress=Bars(lines=verbose))
    not_read = say_not_read(images or [])
    facts = tagger.facts
    if hasattr(tagger.model, "report_") and verbose and not json:
        show_tried(tagger.models_tried())
    chosen = chosen_of(tagger.models_tried())
    queries_too = f" and {count_of(facts['queries'], 'query')}" if "queries" in facts else ""
    learned = f"{count_of(facts['tags'], 'tag')} from {count_of(facts['images'], 'photo')}{queries_too}"
    if words and not facts["tags given"]:
        found = f"{count_of(facts['tags'], 'word')}, found by their vectors; no confidences until photos are tagged."
        place = " ".join(map(str, images or []))
        say(f"{found} The run is in {out}. Next: visterm index {out} {place} -o CATALOGUE")
        say("Then its review page: visterm serve CATALOGUE")
    else:
        say(f"Learned {learned} in {duration(time.monotonic() - began)}{chosen}. The run is in {out}.")
    if RIGHT_OF_5 in facts:
        say(what_to_expect(facts))
    elif calibration and facts["tags given"] and tagger.calibration is None and not tagger.encoder.by_number:
        say("No confidences: fewer than 20 tagged photos could be held out.")
    if json:
        emit({"run": str(out), **facts, "not_read": not_read})
    raise typer.Exit(exit_code(tagger.skipped, out / "skipped.jsonl"))


def fit_catalogue(context: typer.Context, catalogue: Path) -> None:
    """Learn from a catalogue, and say what it changed; refuse options of the fit of a new run."""
    sources = {name: context.get_parameter_source(name) for name in context.params if name not in WITH_A_CATALOGUE}
    if given := [name for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"]:
        name = {"out": "-o", "images": "IMAGES", "set_": "--set"}.get(given[0], "--" + given[0].replace("_", "-"))
        raise UserError(f"{name} does not go with --catalogue, which keeps its own runs. Leave {name} out.")
    from visterm.library.catalogue import Catalogue
    from visterm.library.learned import in_words

    typed, bars = context.params, Bars(lines=context.params["verbose"])
    opened = Catalogue.load(catalogue, n_jobs=typed["jobs"])
    learned = opened.learn(
        full=typed["full"], min_count=typed["min_count"], use_even_if_worse=typed["use_even_if_worse"], progress=bars
    )
    if typed["json"]:
        emit({"catalogue": str(catalogue), **learned.as_dict()})
    elif learned.comparison is not None:
        show_comparison(learned.comparison, old=f"run {learned.number_before}", new=f"run {learned.number}, new")
    say(in_words(learned, catalogue))
