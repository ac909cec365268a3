"""`visterm fit`, `tune` and `use`: learn from photos or a catalogue, compare settings, and choose a catalogue's run."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

import visterm
from visterm.cli import options
from visterm.cli.command_line import imported_when_used
from visterm.cli.output import Bars, JsonObject, duration, emit, in_minutes, say, say_not_read, say_skipped, table
from visterm.core.errors import UserError
from visterm.core.remote import as_path, is_remote
from visterm.core.wording import count_of

with imported_when_used():
    from visterm.core import persist
    from visterm.data import pairs as user_item_pairs
    from visterm.features.streaming import memory as memory_sizes
    from visterm.learning import calibrating, fit_input, fit_request, fitting, part_settings
    from visterm.learning import tune as tuning
    from visterm.library import learn as learning
    from visterm.library import learned as learned_runs
    from visterm.library import runs as catalogue_runs
    from visterm.store import catalogue as stored_catalogues

EXAMPLES = (
    ("visterm fit photos --tags tags.csv -o run", "learn from a tag file"),
    ("visterm fit photos --tags tags.csv -o run --encoder onnx:net.onnx --model knn", "your own network"),
    ("visterm fit photos --tags tags.csv --tag-rules tags.toml -o run", "clean the tags first"),
    ("visterm fit photos --queries clicks.csv --model pamir -o run", "learn from a click log"),
    ("visterm fit --pairs pairs.csv -o run", "learn to recommend items to users"),
    ("visterm fit catalogue", "learn from corrections"),
)
CATALOGUE_PARAMETERS = {"images", "full", "min_count", "json"}
"""Parameters of `fit` that can be used with a catalogue; encoder and model always come from its run."""
PAIRS_PARAMETERS = {"pairs", "out", "model", "set_", "overwrite", "json"}
"""Parameters of `fit` that can be used with pairs of users and items."""


def fit(
    context: typer.Context,
    images: Annotated[
        list[Path] | None,
        options.argument(
            help="A folder of photos, one or more folders of features written by `visterm encode`, or a catalogue. "
            "Leave it out if the tag file names the images (--encoder ids or precomputed).",
            parser=as_path,
        ),
    ] = None,
    out: Annotated[Path | None, options.out_option(help="The run to write, a folder.")] = None,
    tags: options.TagFile = "auto",
    tag_rules: options.TagRulesFile = None,
    min_count: Annotated[
        int, options.input_option(min=1, help="Leave out tags that fewer photos have.", show_default=True)
    ] = 1,
    tree: Annotated[
        str | None,
        options.input_option(
            help="The tree of the tags: a CSV of child,parent, or 'paths' (animals/dog).", metavar="SOURCE"
        ),
    ] = None,
    queries: Annotated[
        Path | None,
        options.input_option(help="Learn from queries: a table with the columns query, image and relevance."),
    ] = None,
    pairs: Annotated[
        Path | None, options.input_option(help="Learn to recommend: a table with the columns user and item.")
    ] = None,
    full: Annotated[
        bool, options.input_option("--full", help="With a catalogue: learn everything again, not only the tags.")
    ] = False,
    encoder: options.EncoderName = None,
    encoder_set: options.EncoderSettings = None,
    model: options.ModelName = None,
    set_: options.ModelSettings = None,
    word_vectors: Annotated[
        str | None,
        options.model_option(
            help="Source of word vectors, which let searches find words that aren't tags: 'encoder' (its text "
            "tower), a file, 'sentences' or 'learned'.",
            metavar="SOURCE",
        ),
    ] = None,
    words: options.Words = None,
    memory: Annotated[
        str | None,
        options.scale_option(
            help="Memory to use, such as 4G; larger features are streamed from disk [default: half of the machine's].",
            metavar="SIZE",
        ),
    ] = None,
    overwrite: Annotated[
        bool, options.output_option("--overwrite", help="Replace an existing run without asking.")
    ] = False,
    json: options.Json = False,
) -> None:
    """Learn tags from photos that have them.

    Writes a run, the folder that other commands tag and search with. A catalogue gets a new run, learned from its tags
    and corrections. The exit code is 3 if photos were skipped.
    """
    if images and len(images) == 1 and not is_remote(images[0]) and persist.folder_kind(images[0]) == "catalogue":
        _fit_catalogue(context, images[0])
        return
    if pairs is not None:
        _fit_pairs(context, pairs, out)
        return

    if full:
        raise UserError("--full is for a catalogue; a new run learns everything anyway. Leave it out.")
    if out is None:
        raise UserError("Missing output folder: pass -o RUN, or name a catalogue to learn from in place of photos.")
    overwrite = options.may_replace(out, overwrite, "run")

    request = fit_request.FitRequest(
        images=fit_input.single_or_features(images), tags=None if queries is not None and tags == "auto" else tags,
        queries=queries, tag_rules=tag_rules, encoder=encoder,
        encoder_params=options.settings(encoder_set, "--encoder-set"),
        model=model, model_params=options.settings(set_, "--set"), word_vectors=word_vectors, words=words or (),
        min_count=min_count, tree=tree, memory=None if memory is None else memory_sizes.read_size(memory),
        out=out, overwrite=overwrite,
    )  # fmt: skip
    start = time.monotonic()
    tagger = visterm.Tagger.of(request)
    if "device" in request.encoder_params:
        for line in part_settings.device_lines(tagger.encoder):
            say(line)

    run = fitting.fit_run(tagger, request, say=say, progress=Bars(lines=False))
    not_read = say_not_read(images or [])
    facts = run.facts
    duration_text = duration(time.monotonic() - start)
    queries_text = f" and {count_of(facts['queries'], 'query')}" if "queries" in facts else ""
    learned_text = f"{count_of(facts['tags'], 'tag')} from {count_of(facts['images'], 'photo')}{queries_text}"
    if words and not facts["tags given"]:
        summary = f"{count_of(facts['tags'], 'word')}, found by their vectors; no confidences until photos are tagged."
        sources = " ".join(map(str, images or []))
        say(f"{summary} The run is in {out}. Next: visterm index {out} {sources} -o CATALOGUE")
        say("Then its review page: visterm serve CATALOGUE")
    else:
        say(f"Learned {learned_text} in {duration_text}{_models_text(run.models_tried())}. The run is in {out}.")

    if calibrating.N_CORRECT_TAGS in facts:
        say(calibrating.what_to_expect(facts))
    elif facts["tags given"] and run.calibration is None and not run.encoder.by_number:
        say("No confidences: fewer than 20 tagged photos could be held out, or all have the same tags.")
    if json:
        emit({"run": str(out), **facts, "not_read": not_read})
    raise typer.Exit(say_skipped(run.skipped, out / "skipped.jsonl"))


def _models_text(report: Sequence[JsonObject]) -> str:
    """Return the end of a sentence that names the models that `auto` chose; "" for a run without `auto`."""
    used = " and ".join(f"{entry['model']} ({entry['weight']:.0%})" for entry in report if entry["weight"])
    if any(entry["reason"].startswith("alone: ") for entry in report):
        return f" with {used}, as there is too little to compare models on"
    n_tried = sum(not entry["reason"].startswith("left out") for entry in report)
    return f" with {used}, chosen from {count_of(n_tried, 'model')}" if report else ""


def _refuse_others(context: typer.Context, allowed: set[str], reason: str) -> None:
    """Raise UserError for an option on the command line that is not among the `allowed` parameters."""
    sources = {name: context.get_parameter_source(name) for name in context.params if name not in allowed}
    if forbidden := [name for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"]:
        names = {"out": "-o", "set_": "--set", "images": "IMAGES"}
        name = names.get(forbidden[0], "--" + forbidden[0].replace("_", "-"))
        raise UserError(f"{name} {reason}. Leave {name} out.")


def _fit_pairs(context: typer.Context, pairs: Path, out: Path | None) -> None:
    """Learn from pairs of users and items, and report the run; refuse options for photos."""
    _refuse_others(context, PAIRS_PARAMETERS, "does not go with --pairs, which needs no photos")
    if out is None:
        raise UserError("Missing output folder: pass -o RUN.")
    params, start = context.params, time.monotonic()
    overwrite = options.may_replace(out, params["overwrite"], "run")
    settings = options.settings(params["set_"], "--set")
    model = params["model"] or part_settings.DEFAULT_MODEL
    read = user_item_pairs.Pairs.of(pairs)
    read.vocabulary()  # refuses names that a run can't have, before a long fit
    recommender = visterm.fit_pairs(read, model=model, model_params=settings, progress=Bars(lines=False))
    recommender.save(out, overwrite=overwrite)
    run, unused = recommender.run_, recommender.pairs_.unused
    if unused:
        columns = f"column{'s' * (len(unused) > 1)} {', '.join(unused)}"
        say(f"Not used: the {columns}. Each pair counts the same; visterm.fit_pairs in Python takes weights.")
    learned_text = f"{count_of(recommender.items_.size, 'item')} from {count_of(recommender.users_.size, 'user')}"
    say(
        f"Learned {learned_text} in {duration(time.monotonic() - start)}{_models_text(run.models_tried())}. The run is "
        f"in {out}. Next: visterm annotate {out} USER --new-only"
    )
    if params["json"]:
        emit({"run": str(out), **run.facts})


def _fit_catalogue(context: typer.Context, catalogue: Path) -> None:
    """Learn from a catalogue, and report the comparison of the runs; refuse options for a new run."""
    _refuse_others(context, CATALOGUE_PARAMETERS, "does not go with a catalogue, which keeps its own runs")
    params = context.params
    opened = visterm.Catalogue.load(catalogue)
    settings = {"full": params["full"], "min_count": params["min_count"]}
    if remark := learning.left_out_remark(opened.tagger, opened.stored, **settings):
        say(remark)
    learned = opened.learn(**settings, progress=Bars(lines=False))
    if params["json"]:
        emit({"catalogue": str(catalogue), **learned.as_dict()})
    elif (comparison := learned.comparison) is not None:
        interval = "" if comparison.interval is None else "{:+.3f} to {:+.3f}".format(*comparison.interval)
        rows = [
            [f"run {learned.number_before}", f"{comparison.before:.3f}", ""],
            [f"run {learned.number}, new", f"{comparison.after:.3f}", ""],
            ["difference", f"{comparison.difference:+.3f}", interval],
        ]
        table(rows, [f"on {count_of(comparison.compared, 'photo')} held out", "MAP", "95 % interval"])

    say(learned_runs.outcome_text(learned, catalogue))


TUNE_EXAMPLES = (
    ("visterm tune photos -o run --grid dim=50,100 --grid learning_rate=0.001,0.01", "try all four"),
    ("visterm tune photos -o run --random 20 --grid learning_rate=0.0001:0.1:log", "draw 20 rates"),
)


def tune(
    out: Annotated[Path, options.out_option(help="The run to write, a folder.")],
    grid: Annotated[
        list[str],
        options.model_option(
            help="Values to try, NAME=VALUE,VALUE, or with --random a range, NAME=LOW:HIGH or NAME=LOW:HIGH:log. "
            "Repeat for more settings."
        ),
    ],
    images: options.ImagesOrNone = None,
    tags: options.TagFile = "auto",
    tag_rules: options.TagRulesFile = None,
    encoder: options.EncoderName = None,
    model: Annotated[
        str,
        options.model_option(
            help="The model: a name from `visterm models`.", show_default=True, autocompletion=options.model_names
        ),
    ] = "wsabie",
    set_: options.ModelSettings = None,
    n_random: Annotated[
        int | None,
        options.model_option("--random", min=1, help="Try this many random settings [default: all combinations]."),
    ] = None,
    ray: options.Ray = None,
) -> None:
    """Try settings of a model, and learn with the best ones.

    Compares the settings by MAP on held-out photos, then learns from all photos. Finished trials are stored in
    RUN.tune.jsonl; run the same command again to continue. The exit code is 3 if photos were skipped.
    """
    request = fit_request.FitRequest(
        images=images, tags=tags, tag_rules=tag_rules, encoder=encoder, model=model,
        model_params=options.settings(set_, "--set"), out=out,
        overwrite=options.may_replace(out, kind="run"),
    )  # fmt: skip
    space = options.choices(grid)
    tuned = tuning.tune(
        request, grid=space, n_random=n_random, executor=options.executor_of(ray), say=say, progress=Bars()
    )
    names = list(tuned.trials[0].settings)
    rows = []
    for trial in tuned.trials:
        value = "diverged" if trial.value is None else f"{trial.value:.4f}"
        epochs = "-" if trial.epochs is None else str(trial.epochs)
        rows.append([*(str(trial.settings[name]) for name in names), value, epochs, f"{trial.seconds:.1f}"])

    table(rows, [*names, "map", "epochs", "seconds"])
    say(f"Learned from all photos with the best settings. The run is in {out}.")
    raise typer.Exit(say_skipped(tuned.run.skipped, out / "skipped.jsonl"))


USE_EXAMPLES = (
    ("visterm use catalogue", "list its runs, with dates and figures"),
    ("visterm use catalogue 3", "use run 3"),
    ("visterm use catalogue --back", "use the previous run again"),
)


def use(
    catalogue: options.CatalogueFolder,
    run: Annotated[
        str | None, options.argument(help="One of its runs, by its number. Leave it out to list them all.")
    ] = None,
    back: Annotated[
        bool, options.input_option("--back", help="Go back to the previous run, or to an earlier RUN.")
    ] = False,
) -> None:
    """Search a catalogue with another of its runs, or list them.

    Call --back twice to go back two runs. A run that you went back to is only replaced automatically by one that is
    clearly better. Tags and answers of people are kept.
    """
    if run is None and not back:
        _show_runs(catalogue)
        return
    name = run or ""
    if back:  # the current run is not read: it may be damaged
        name = catalogue_runs.run_to_go_back_to(stored_catalogues.StoredCatalogue.open(catalogue), name).fingerprint
    opened = visterm.Catalogue.load(catalogue, run=name)
    runs = opened.stored.runs
    old_run = runs.current()
    filled = opened.use(opened.tagger, kind=catalogue_runs.GO_BACK if back else catalogue_runs.USE_RUN, progress=Bars())
    new_run = runs.current()
    if new_run == old_run:
        say(f"{catalogue} uses run {new_run.id} already.")
        return

    rows_note = f" {count_of(filled.rows, 'row')} computed again." if filled.rows else ""
    undo_command = f"visterm use {catalogue} {old_run.id}" if back else f"visterm use {catalogue} --back"
    verb = "is back to" if back else "uses"
    reminder = "Tags and answers of people are kept. " if back else ""
    undo_hint = "To use the later run again" if back else "To go back"
    date = in_minutes(new_run.added)
    say(f"{catalogue} {verb} run {new_run.id}, of {date}.{rows_note} {reminder}{undo_hint}: {undo_command}")


def _show_runs(catalogue: Path) -> None:

    stored = stored_catalogues.StoredCatalogue.open(catalogue)
    rows = []
    for entry in catalogue_runs.shown_runs(stored, catalogue_runs.known_runs(stored)):
        counts = ["gone" if n is None else f"{n:,}" for n in (entry.tags, entry.images)]
        comparison_cells = ["-"] * 3
        if (comparison := entry.comparison) is not None:
            comparison_cells = [f"{comparison.before:.3f}", f"{comparison.after:.3f}", comparison.verdict]
        status = "in use" if entry.run.current else ""
        rows.append([str(entry.run.id), in_minutes(entry.run.added), status, *counts, *comparison_cells])
    if rows:
        table(rows, ["run", "made (UTC)", "", "tags", "photos", "MAP before", "MAP", "on held-out photos"])
