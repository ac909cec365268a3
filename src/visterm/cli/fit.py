"""`visterm fit`: learn from tagged photos, or again from a catalogue."""

from __future__ import annotations

import time
from pathlib import Path

import typer

from visterm.cli import learning_options as learning
from visterm.cli import options
from visterm.cli.output import chosen_of, emit, exit_code, say, say_not_read
from visterm.cli.progress import Bars, duration
from visterm.cli.runs import show_comparison
from visterm.core.errors import UserError
from visterm.core.wording import count_of

EXAMPLES = (
    ("visterm fit photos --tags tags.csv -o run", "learn from a tag file"),
    ("visterm fit photos --tags tags.csv -o run --encoder onnx:net.onnx --model knn", "your own network"),
    ("visterm fit photos --tags tags.csv --tag-rules tags.toml -o run", "clean the tags first"),
    ("visterm fit photos --queries clicks.csv --model pamir -o run", "learn from a click log"),
    ("visterm fit catalogue", "learn from corrections"),
)
WITH_A_CATALOGUE = {"images", "full", "min_count", "json"}
"""Parameters that go with a catalogue: encoder and model are those of its run."""


def fit(
    context: typer.Context,
    images: learning.ImagesOrCatalogue = None,
    out: learning.Out = None,
    tags: options.TagFile = "auto",
    tag_rules: options.TagRulesFile = None,
    min_count: learning.MinCount = 1,
    tree: learning.Tree = None,
    queries: learning.Queries = None,
    full: learning.Full = False,
    encoder: options.EncoderName = None,
    encoder_set: options.EncoderSettings = None,
    model: learning.ModelName = None,
    set_: learning.ModelSettings = None,
    word_vectors: learning.WordVectors = None,
    words: learning.Words = None,
    memory: options.Memory = None,
    overwrite: options.Overwrite = False,
    json: options.Json = False,
) -> None:
    """Learn tags from photos that have them.

    Writes a run, the folder that other commands tag and search with. A catalogue gets a new run, learned from its tags
    and corrections. The exit code is 3 if photos were skipped.
    """
    if images and len(images) == 1 and is_catalogue(images[0]):
        fit_catalogue(context, images[0])
        return
    if full:
        raise UserError("--full is for a catalogue; a new run learns everything anyway. Leave it out.")
    if out is None:
        raise UserError("Missing output folder: pass -o RUN, or name a catalogue to learn from in place of photos.")
    overwrite = options.may_replace(out, overwrite, "run")
    from visterm.tagging.calibrating import RIGHT_OF_5, what_to_expect
    from visterm.tagging.fit_input import one_or_features
    from visterm.tagging.fit_request import FitRequest
    from visterm.tagging.fitting import fit_run
    from visterm.tagging.tagger import Tagger

    request = FitRequest(
        images=one_or_features(images), tags=None if queries is not None and tags == "auto" else tags, queries=queries,
        tag_rules=tag_rules, encoder=encoder, encoder_params=options.settings(encoder_set, "--encoder-set"),
        model=model, model_params=options.settings(set_, "--set"), word_vectors=word_vectors, words=words or (),
        min_count=min_count, tree=tree, memory=options.bytes_of(memory), out=out,
        overwrite=overwrite,
    )  # fmt: skip
    began = time.monotonic()
    tagger = Tagger.of(request)
    if "device" in request.encoder_params:
        from visterm.tagging.part_settings import device_lines

        for line in device_lines(tagger.encoder):
            say(line)
    fit_run(tagger, request, say=say, progress=Bars(lines=False))
    not_read = say_not_read(images or [])
    facts = tagger.facts
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
    elif facts["tags given"] and tagger.calibration is None and not tagger.encoder.by_number:
        say("No confidences: fewer than 20 tagged photos could be held out.")
    if json:
        emit({"run": str(out), **facts, "not_read": not_read})
    raise typer.Exit(exit_code(tagger.skipped, out / "skipped.jsonl"))


def is_catalogue(path: Path) -> bool:
    """Return whether a path is the folder of a catalogue on this machine."""
    from visterm.core.persist import folder_kind
    from visterm.core.remote import is_remote

    return not is_remote(path) and folder_kind(path) == "catalogue"


def fit_catalogue(context: typer.Context, catalogue: Path) -> None:
    """Learn from a catalogue, and say what it changed; refuse options of the fit of a new run."""
    sources = {name: context.get_parameter_source(name) for name in context.params if name not in WITH_A_CATALOGUE}
    if given := [name for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"]:
        name = {"out": "-o", "set_": "--set"}.get(given[0], "--" + given[0].replace("_", "-"))
        raise UserError(f"{name} does not go with a catalogue, which keeps its own runs. Leave {name} out.")
    from visterm.library.catalogue import Catalogue
    from visterm.library.learned import in_words

    typed = context.params
    opened = Catalogue.load(catalogue)
    learned = opened.learn(full=typed["full"], min_count=typed["min_count"], progress=Bars(lines=False))
    if typed["json"]:
        emit({"catalogue": str(catalogue), **learned.as_dict()})
    elif learned.comparison is not None:
        show_comparison(learned.comparison, old=f"run {learned.number_before}", new=f"run {learned.number}, new")
    say(in_words(learned, catalogue))
