"""Runs on the Hugging Face hub: push them without names and tags of photos, and fetch them."""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from visterm.core.errors import CorruptFileError, StorageError, UserError
from visterm.core.learned import Array, learned_attributes, learned_kinds
from visterm.core.persist import MANIFEST, new_folder, read_json, write_json
from visterm.core.tables import ENCODERS, MODELS
from visterm.core.writing import write_whole
from visterm.encoders.hub import fetch_file, hub_errors, is_unreached
from visterm.encoders.named import hub_client
from visterm.encoders.network import NetworkEncoder
from visterm.learning.calibrating import N_CORRECT_TAGS, N_PRECISE_TAGS
from visterm.learning.learned import LearnedImages, write_run
from visterm.learning.run import Run, check_opens
from visterm.models.base import Annotator

LOG = logging.getLogger("visterm")
CARD_FILE = "README.md"
NETWORK = "network"  # Name of the network's file in a repository, without the extension
HUB_PREFIX = "hub:"  # Prefix of repositories where a run is expected
HUB_PAGE = "https://huggingface.co/"

RUN_FILES = ["model.*", "encoder.*", f"{NETWORK}.*", "given.*", "reference.*", "calibration.*", "*words.*", "*.csv"]
"""Files that an earlier push may have left in a repository and that the new run may not have; a push deletes them."""

_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")  # Valid names of files in a run: never outside its folder
_PATH_KEYS = {"path", "weights", "network_path_", "checkpoint"}  # JSON keys whose values are paths


class PushedRun(NamedTuple):
    """The page and the files of a push, or of a dry run."""

    page: str
    files: dict[str, int]  # Size of each file in bytes, by name


def push_run(
    run: Run,
    repository: str,
    *,
    public: bool = False,
    with_photos: bool = False,
    with_network: bool = False,
    licence: str | None = None,
    message: str | None = None,
    dry_run: bool = False,
) -> PushedRun:
    """Write a run into a repository of the hub, see `Tagger.push_to_hub`."""
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", repository):
        raise UserError(setting="repository", value=repository, expected="OWNER/NAME, for example ann/holidays")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "run"
        write_shared(run, folder, repository, with_photos=with_photos, with_network=with_network, licence=licence)
        files = {path.name: path.stat().st_size for path in sorted(folder.iterdir())}
        page = f"{HUB_PAGE}{repository}"
        if not dry_run:
            api = hub_client().HfApi(library_name="visterm", library_version=version("visterm"))
            with hub_errors(f"The run could not be pushed to {repository}", page):
                page = str(api.create_repo(repository, private=not public, exist_ok=True))
                api.upload_folder(
                    repo_id=repository, folder_path=folder, commit_message=message or "A run of visterm",
                    delete_patterns=RUN_FILES,
                )  # fmt: skip
    return PushedRun(page, files)


def write_shared(
    run: Run, folder: Path, name: str, *, with_photos: bool, with_network: bool, licence: str | None
) -> None:
    """Write a run in the form to push: with its card, without names of photos, their tags, and paths of files.

    Raises UserError if the run needs the names or the tags of photos, or if `with_network` is set and the encoder has
    no network in a single file.
    """
    run._refuse_unfitted()
    shared_parts = run.parts
    if not with_photos:
        _check_no_photos(run)
        shared_parts = shared_parts.changed(skipped=[], learned_images=LearnedImages())

    with new_folder(folder, "run", check=partial(check_opens, type(run)), fingerprint=run.fingerprint) as target:
        write_run(shared_parts, target)
        for file in target.glob("*.json"):
            write_json(file, _with_file_names(read_json(file)))
        if with_network:
            if not isinstance(run.encoder, NetworkEncoder):  # has all weights in a single file
                raise UserError(
                    f"The encoder '{ENCODERS.name_of(run.encoder)}' has no network in a file.",
                    setting="with_network", value=True, advice="Leave `with_network` out.",
                )  # fmt: skip
            network = Path(run.encoder._network_file())
            shutil.copyfile(network, target / f"{NETWORK}{network.suffix}")
    (folder / CARD_FILE).write_text(card_of(run, name, licence=licence, with_network=with_network), encoding="utf-8")


def fetch_run(repository: str, revision: str | None = None) -> Path:
    """Download a run from the hub into the cache of the hub's client, and return its folder in the cache.

    The run's manifest lists the files and their checksums, which are checked when the run is opened. Raises
    StorageError if the repository doesn't exist or has no run; CorruptFileError if the manifest is invalid or has names
    of files outside its folder.
    """
    client, page, advice = hub_client(), f"{HUB_PAGE}{repository}", "Ask its owner to push the run again."
    with hub_errors(f"The run {repository} could not be fetched", page):
        try:
            manifest = _fetch_cached(client, repository, MANIFEST, revision or "main")
        except client.errors.EntryNotFoundError as error:
            raise StorageError(f"{page} has no {MANIFEST}, so it is not a run of visterm.") from error
        content = read_json(manifest)
        names = content.get("sha256") if isinstance(content, dict) else None
        if not isinstance(names, dict):
            raise CorruptFileError(f"{MANIFEST} of {page} has no checksums of files, so it is not a run. {advice}")
        if invalid := [name for name in names if not _FILE_NAME.fullmatch(name)]:
            raise CorruptFileError(f"{MANIFEST} of {page} lists files that no run has ({invalid[0][:100]!r}). {advice}")
        for name in names:
            _fetch_cached(client, repository, name, manifest.parent.name)
    return manifest.parent


def _fetch_cached(client: Any, repository: str, name: str, revision: str) -> Path:
    """Download a file unless this commit of it is cached; if the hub is unreachable, use the cached branch."""
    cached = client.try_to_load_from_cache(repository, name, revision=revision)
    path = Path(cached) if isinstance(cached, str) else None
    if path is not None and path.parent.name == revision:
        return path
    try:
        fetched = fetch_file(repository, name, revision)
    except Exception as error:
        if path is None or not is_unreached(error):
            raise
        LOG.warning("The hub cannot be reached: using the cached %s of %s.", name, repository)
        return path

    if revision != fetched.commit:
        reference = fetched.path.parents[2] / "refs" / revision
        reference.parent.mkdir(parents=True, exist_ok=True)
        write_whole(reference, fetched.commit.encode())
    return fetched.path


def card_of(run: Run, name: str, *, licence: str | None = None, with_network: bool = False) -> str:
    """Return the model card of a run: metadata for the hub, instructions, and measurements."""
    facts, encoder, model = run.facts, ENCODERS.name_of(run.encoder), MODELS.name_of(run.model)
    n = facts.get("calibration images", 0)
    figures = {
        "tags": f"{len(run.vocabulary):,}",
        "training photos": f"{facts.get('images', 0):,}",
        "tags of these photos": f"{facts.get('tags given', 0):,}",
    }
    if N_CORRECT_TAGS in facts:
        figures[f"right tags among a photo's 5 best, mean of {n:,} held-out photos"] = f"{facts[N_CORRECT_TAGS]:.2f}"
        figures["tags per photo at an expected precision of 0.9"] = f"{facts[N_PRECISE_TAGS]:.2f}"
    rows = "\n".join(f"| {label} | {value} |" for label, value in figures.items())
    network = getattr(run.encoder, "network_sha256_", None)
    network_note = (
        "" if network is None or with_network else
        f"\nThe network isn't in this repository. Its SHA-256 is `{network}`; `from_pretrained` says where to put it.\n"
    )  # fmt: skip
    return f"""---
library_name: visterm
pipeline_tag: image-classification
tags: [visterm, multi-label, photo-tagging]
{f"license: {json.dumps(licence)}" + chr(10) if licence else ""}---

# {name.partition("/")[2]}

A run of visterm {version("visterm")}: it tags photos with the tags of one photo library.

    from visterm import Tagger

    tagger = Tagger.from_pretrained("{name}")
    tagger.annotate("photos")

or `visterm annotate {HUB_PREFIX}{name} photos`. Encoder: `{encoder}`; model: `{model}`.
{network_note}
| measured by the fit | |
| --- | --- |
{rows}

The figures are for photos of that library; for other photos they may be lower. Files are JSON and safetensors, never
pickles. Names of photos, and the tags of each photo, are not in this repository unless its owner chose to publish them.
"""


def _check_no_photos(run: Run) -> None:
    advice = "Pass `with_photos` if everybody who can read the repository may see them."
    if run.encoder.reads == "names" or run.given is not None:
        raise UserError(
            f"The encoder '{ENCODERS.name_of(run.encoder)}' of this run stores names of photos, which would be in "
            "the repository.",
            setting="with_photos", value=False, advice=advice,
        )  # fmt: skip
    if name := next(tags_of_photos(run.model), None):
        raise UserError(
            f"The model '{name}' of this run stores the tags of each training photo, which would be in the repository.",
            setting="with_photos", value=False, advice=f"Fit another model (ridge or wsabie). {advice}",
        )  # fmt: skip


def tags_of_photos(model: Annotator) -> Iterator[str]:
    """Yield the names of the models, including members of a blend, that store tags of training photos."""
    kinds = learned_kinds(model)
    for name in learned_attributes(model):
        kind = kinds.get(name)
        if isinstance(kind, Array) and tuple(kind.shape or ()) == ("n_images", "n_tags_"):
            yield MODELS.name_of(model)
    for member in getattr(model, "members_", ()):
        yield from tags_of_photos(member)


def _with_file_names(value: Any, key: str = "") -> Any:
    """Return a JSON value with paths replaced by the names of their files."""
    if isinstance(value, dict):
        return {name: _with_file_names(item, name) for name, item in value.items()}
    if isinstance(value, list):
        return [_with_file_names(item, key) for item in value]
    if isinstance(value, str) and (key in _PATH_KEYS or os.path.isabs(value)):
        return re.split(r"[/\\]", value)[-1]
    return value
