"""Summaries of runs, catalogues, features and annotations, and the check for damage."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from visterm.core.errors import StorageError, UserError
from visterm.core.learned import Record, Sizes, Text
from visterm.core.persist import folder_kind, open_folder, read_description, refusing
from visterm.core.remote import as_path
from visterm.core.wording import count_of
from visterm.encoders.named import DEFAULT_ENCODER, visterms_line
from visterm.features.folder import ENCODER, FEATURES, FeatureFolder, is_features, read_checked
from visterm.features.remote_folder import feature_folder
from visterm.learning.learned import FACTS_KIND
from visterm.learning.run import name_blocks
from visterm.library.encoded_features import CatalogueFeatures
from visterm.library.learn import LEARNED_HERE
from visterm.library.learned import Comparison
from visterm.library.runs import go_back_advice, known_runs
from visterm.store.catalogue import FEATURES as CATALOGUE_FEATURES
from visterm.store.catalogue import StoredCatalogue
from visterm.store.connected import OFF, WRITTEN, ProgramConnection
from visterm.store.history import Event, StoredRun
from visterm.tagging.annotation_job import ANNOTATIONS, AnnotationFolder, annotation_folder

DESCRIPTION_SCHEMA = Record({"name": Text(), "params": Record(), "values": Record()})
TRIED_MODELS = "models tried"  # Fact of runs by `auto`, with one entry per model

COMPARISON_FACTS = tuple(field.name for field in fields(Comparison))  # Facts of a run that its comparison already shows
N_LATEST = 5  # Number of jobs and of history entries to show


def describe(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the facts of a run, a catalogue, features or annotations: kind, counts, encoder, model, settings.

    Raises StorageError if `path` is something else.
    """
    if is_features(path):
        return _feature_facts(feature_folder(path))
    kind = folder_kind(path)
    annotations = annotation_folder(path)
    if kind == ANNOTATIONS or annotations.unfinished.is_dir():
        return _annotation_facts(annotations)
    if kind not in ("run", "catalogue"):
        missing = "" if as_path(path).exists() else ": the path does not exist"
        problem = f"{path} is neither a run nor a catalogue of visterm, nor a features folder{missing}."
        raise StorageError(problem, advice="Make one with visterm fit, index or encode.")

    if kind == "run":
        return {"kind": kind} | _run_facts(open_folder(path, kind))
    stored = StoredCatalogue.open(path)
    with go_back_advice(stored):
        run = _run_facts(open_folder(stored.run_folder, "run"))
    return {"kind": kind} | catalogue_facts(stored) | {"run": run}


def encoder_advice(path: str | os.PathLike[str]) -> str | None:
    """Return what visterms cost, if they are the encoder of a catalogue's current run; None for other encoders."""
    stored = StoredCatalogue.open(path)
    try:
        encoder = _read_described(stored.run_folder, "encoder")
    finally:
        stored.close()
    return visterms_line() if encoder["name"] == DEFAULT_ENCODER else None


def check(path: str | os.PathLike[str]) -> str:
    """Verify the checksums of a run or a catalogue, its features and its database; return text on what was checked.

    Raises CorruptFileError if something is damaged; UserError if `path` is not a run or a catalogue.
    """
    kind = folder_kind(path)
    if kind == "run":
        open_folder(path, kind)
        return "no damage: all files are unchanged. Not checked: seconds of training (model.times.json)"
    if kind != "catalogue":
        problem = f"`check` is for runs and catalogues, and {path} is neither."
        raise UserError(problem, setting="check", value=True, advice="Leave `check` out.")

    stored = StoredCatalogue.open(path)
    stored.check()
    for (fingerprint,) in stored.database.rows("SELECT DISTINCT encoder_fingerprint FROM features"):
        CatalogueFeatures(stored, fingerprint).check()
    for run in known_runs(stored):
        folder = stored.run_folder.with_name(run.fingerprint)
        if run.current or folder.exists():  # users may delete the files of earlier runs
            open_folder(folder, "run")

    return (
        "no damage: the rows and the runs are unchanged, all features can be read, and the database passes SQLite's "
        "checks. Not checked: values of the database that are in no index (sizes, dates, scores), and seconds of "
        "training (model.times.json)"
    )


def _annotation_facts(folder: AnnotationFolder) -> dict[str, Any]:
    contents, notes = folder.contents(), folder.notes()
    if contents is None:
        return {"kind": folder.kind, "parts so far": len(notes)}
    return {
        "kind": folder.kind,
        "images": contents.n_images,
        "annotated": contents.n_rows,
        "skipped images": contents.n_skipped,
        "parts": len(contents.shards),
        "run": contents.run,
        "wanted": {name: value for name, value in contents.wanted.items() if value not in (None, False)},
    } | ({"parts of an unfinished update": len(notes)} if folder.unfinished.is_dir() else {})


def _feature_facts(features: FeatureFolder) -> dict[str, Any]:
    contents, notes = features.contents(), features.notes()
    if contents is None:  # the job was stopped, or is still running
        no_encoder = {"name": "not learned yet", "params": {}}
        encoder = _read_described(features.path / ENCODER, ENCODER) if features.has_encoder() else no_encoder
        return {
            "kind": f"{FEATURES}, not finished",
            "shards so far": len(notes),
            "rows so far": sum(note["entry"]["rows"] for note in notes if note["entry"] is not None),
            "skipped images so far": sum(len(note["skipped"]) for note in notes),
            "encoder": encoder["name"],
            "encoder settings": encoder["params"],
            "go on": "visterm encode was stopped, or is still running: to continue, run the same command again",
        }
    update = {"shards of an unfinished update": len(notes)} if features.unfinished.is_dir() else {}
    return {
        "kind": features.kind,
        "images": contents.n_images,
        "rows": contents.n_rows,
        "skipped images": contents.n_skipped,
        "features": contents.width,
        "layout": contents.layout,
        "shards": len(contents.shards),
        "made of": contents.images,
        "encoder": contents.encoder,
        "encoder settings": contents.settings,
        "encoder fingerprint": contents.fingerprint,
    } | update


def _run_facts(folder: Path) -> dict[str, Any]:
    encoder, model = _read_described(folder, "encoder"), _read_described(folder, "model")
    facts = read_checked(folder / "facts.json", FACTS_KIND)
    with refusing(folder / "model.json"):
        history = _learned_value(model, "history_") or []
        map_scores, ranks = (
            [entry[name] for entry in history if entry.get(name) is not None] for name in ("map", "mean_rank")
        )
        tried_models = _learned_value(model, "report_")
        if tried_models is not None:  # name the blocks of a chain of encoders, one block each, like the encoders
            parts = [part["name"] for part in encoder["values"].get("parts_", {}).get("estimators", [])]
            tried_models = name_blocks(tried_models, parts)
        learned = {
            "epochs": _learned_value(model, "n_epochs_"),
            "best validation MAP": max(map_scores, default=_learned_value(model, "valid_map_")),
            "best validation mean rank": min(ranks, default=None),
            "validation word MAP": _learned_value(model, "valid_word_map_"),
            TRIED_MODELS: tried_models,
        }

    names = {
        "encoder": encoder["name"], "encoder settings": encoder["params"],
        "model": model["name"], "model settings": model["params"],
    }  # fmt: skip
    return facts | names | {name: value for name, value in learned.items() if value is not None}


def _read_described(folder: Path, name: str) -> dict[str, Any]:
    """Read the JSON description of an encoder or a model, for display only, without creating the object."""
    with refusing(folder / f"{name}.json"):
        described: dict[str, Any] = read_description(folder, name)
        DESCRIPTION_SCHEMA.check(described, Sizes())
        for value in described["values"].values():
            Record().check(value, Sizes())
    return described


def _learned_value(model: dict[str, Any], name: str) -> Any:
    return model["values"].get(name, {}).get("value")


def catalogue_facts(stored: StoredCatalogue) -> dict[str, Any]:
    """Return the facts of a catalogue, without those of its current run."""
    all_runs = stored.runs.all()
    count, connection = stored.database.value, stored.connected.get()
    source, connection_facts = "tags of files", {}
    if connection is not None:
        source = f"tags from {connection.title}"
        connection_facts = {
            "connected to": f"{connection.kind} at {connection.address}",
            "key file": connection.key_file or "none: the key is in the environment",
            "last sync": connection.synced or "not yet",
            "next sync writes": connection.writes(),
            "photos there": stored.connected.count(),
            "tags written there": count("SELECT count(*) FROM remote_pairs WHERE state = ?", (WRITTEN,)),
            "tags removed there": count("SELECT count(*) FROM remote_pairs WHERE state = ?", (OFF,)),
        }

    runs = {
        run.fingerprint: {
            "number": run.id,
            "since": run.added,
            "current": run.current,
            "rows": count("SELECT count(*) FROM rows WHERE run_id = ?", (run.rows_of,)),
            "rows of": next(other.fingerprint for other in all_runs if other.id == run.rows_of),
            "made by": _maker(run, connection),
            **{name: value for name, value in run.facts.items() if name not in (LEARNED_HERE, *COMPARISON_FACTS)},
            **({} if (comparison := Comparison.of(run.facts)) is None else {"comparison": comparison.as_dict()}),
        }
        for run in all_runs
    }

    not_read_of_folder = {run.get("folder", ""): run.get("not read", "") for run in stored.history.details_of("index")}
    not_read = "; ".join(filter(None, not_read_of_folder.values()))  # from the latest indexing of each folder
    return {
        "images": len(stored),
        "images without a row": stored.images.count() - len(stored),
        "gone images": stored.images.count("gone") - (n_hidden := len(stored.images.hidden())),
        "hidden images": n_hidden,
        "reviewed images": count("SELECT count(*) FROM images WHERE state = 'here' AND reviewed IS NOT NULL"),
        "skipped images": stored.skipped.count(),
        source: count("SELECT count(*) FROM given WHERE source = 'file'"),
        "tags of people": count("SELECT count(*) FROM given WHERE source = 'person'"),
        "accepted tags": count("SELECT count(*) FROM verdicts WHERE verdict = 1"),
        "rejected tags": count("SELECT count(*) FROM verdicts WHERE verdict = -1"),
        **connection_facts,
        "made by": next(_maker(run, connection) for run in all_runs if run.current),
        "searched": stored.how_it_searches(),
        "rows in": stored.where_rows_are(),
        "features": _features(stored),
        "runs": runs,
        "jobs": {
            f"{job.id} {job.kind}": ": ".join(filter(None, (job.state, job.error or job.message)))
            for job in stored.jobs.latest(N_LATEST)
        },
        **({"not read": not_read} if not_read else {}),
        "history": {f"{event.at} {event.what}": _details(event, all_runs) for event in stored.history.latest(N_LATEST)},
    }


def _details(event: Event, runs: Sequence[StoredRun]) -> str:
    """Return the details of an event in one line, with runs as numbers and without empty values."""
    display_names = {True: "yes", False: "no"} | {run.fingerprint: str(run.id) for run in runs}
    details = (
        f"{name.replace('_', ' ')}: {display_names.get(value, value) if isinstance(value, bool | str) else value}"
        for name, value in event.details.items()
        if value not in (None, "") and not isinstance(value, list)
    )
    return ", ".join(details) or "nothing new"


def _maker(run: StoredRun, connection: ProgramConnection | None) -> str:
    if LEARNED_HERE in run.facts:
        return "this catalogue"
    return run.folder or ("a run that was not saved" if connection is None else "visterm connect")


def _features(stored: StoredCatalogue) -> dict[str, str]:
    facts = {}
    for fingerprint, rows, shards in stored.database.rows(
        "SELECT encoder_fingerprint, count(*), count(DISTINCT shard) FROM features GROUP BY encoder_fingerprint"
    ):
        folder = None if stored.folder is None else stored.folder / CATALOGUE_FEATURES / fingerprint
        files = folder.iterdir() if folder is not None and folder.is_dir() else ()
        size = sum(file.stat().st_size for file in files)
        facts[fingerprint] = f"{rows:,} photos in {count_of(shards, 'file')}, {size / 1e6:,.1f} MB"
    return facts
