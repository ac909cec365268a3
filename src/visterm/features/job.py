"""Encoding a folder of images as a job that can be interrupted: shard by shard; later runs encode only new images."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from visterm.core.checks import check_count, stack_rows
from visterm.core.errors import DataError, EncoderMismatchError, StorageError, UserError
from visterm.core.executor import Executor, for_parts, require_visible_path
from visterm.core.packing import json_params
from visterm.core.persist import load_estimator, open_folder
from visterm.core.progress import SILENT, Progress, Say, StepProgress, reported, silent
from visterm.core.remote import absolute
from visterm.core.tables import ENCODERS
from visterm.core.threads import Team
from visterm.core.types import Matrix, Place, Skipped
from visterm.core.wording import count_of
from visterm.data.contents import content_hash, stamp_hash, stamps
from visterm.data.feature_shards import SUFFIX, Shard, shard_bytes
from visterm.data.image_folders import ListedImages, Unsearched, image_names, is_there
from visterm.encoders.contract import AnyEncoder
from visterm.encoders.named import encoder_line, make_encoder
from visterm.features.folder import Contents, FeatureFolder, FirstJob, ShardEntry, cut, naming_a_full_disk
from visterm.features.part_work import PartDone, PartWork
from visterm.features.remote_folder import feature_folder
from visterm.features.stored import FolderRows, StoredRow

SHARD_SIZE = 512  # Approximate number of images per shard, which a kill loses, and which are in memory together
CHANGED = "changed while it was being read: run again"


@dataclass(frozen=True, slots=True)
class EncodeSummary:
    """The result of one run of the job, and the contents of the folder afterwards."""

    images: int  # Files in the image folder: ``rows + skipped``
    rows: int  # Images with a row: ``encoded + reused``
    encoded: int  # Images encoded by this run
    reused: int  # Images with a row from an earlier run, even if that run was killed
    gone: int  # Images that had a row, but are no longer in the folder
    skipped: int  # Images that could not be read
    shards: int
    width: int
    layout: str  # "dense" or "sparse"
    encoder: str
    fingerprint: str
    shared: bool  # Whether workers of other processes made the shards

    def as_dict(self) -> dict[str, object]:
        """Return the summary for JSON."""
        return asdict(self)


def encode_folder(
    images: Place,
    out: Place,
    *,
    encoder: str | None = None,
    encoder_params: Mapping[str, object] | None = None,
    run: Place | None = None,
    shard_size: int | None = None,
    n_jobs: int | None = None,
    executor: Executor | None = None,
    say: Say = silent,
    progress: Progress = SILENT,
) -> EncodeSummary:
    """Write the feature rows of all images of a folder into a features folder, with the encoder that made them.

    The shards, of about `shard_size` images, are files of safetensors in ``out/data``. Their content depends on the
    encoder and the images, not on how often the job was killed. The encoder is given as for `Tagger`; None
    means the folder's own, or that of `run`, or `default_encoder`, which `say` reports. An encoder that learns is
    fitted on all images of the first run; `encoder_params` are its settings. In an existing folder, only images with
    new content are encoded, by the encoder fitted first, and rows of missing images are dropped. The folder keeps its
    previous contents until the job is finished.

    `n_jobs` is the number of threads of this process; an executor has its own. With an executor of several machines,
    all machines must be able to access `images` and `out`; a single shard is always made in this process.

    Raises UserError if a setting is invalid; DataError if `images` is not a folder, or has no images; StorageError if
    `out` is something else, another process is writing to it, or the disk is full; EncoderMismatchError if `out` has
    features of another encoder.
    """
    if shard_size is not None:
        check_count(shard_size, "shard_size")
    folder = feature_folder(out)
    folder.check_path()
    executor = Executor(n_jobs) if executor is None else executor
    n_jobs = executor.n_jobs
    requested = _requested_encoder(folder, encoder, encoder_params or {}, run, n_jobs)
    root = absolute(images)
    unsearched = Unsearched()
    names = image_names(images, unsearched=unsearched)

    with naming_a_full_disk(folder.path), folder.locked():
        folder.begin()
        if not folder.has_encoder():
            if (line := encoder_line(requested)) is not None:
                say(line)
            new_encoder = requested or make_encoder(None, {}, {"random_state": 0, "n_jobs": n_jobs})
            first_job = FirstJob(new_encoder.fingerprint, shard_size or SHARD_SIZE)
            if run is None:
                new_encoder.fit(ListedImages(root, names), skip_unreadable=True, progress=progress)
            folder.save_encoder(new_encoder, first_job)
        fitted, first_job = _encoder_of(folder, requested, n_jobs)
        previous = folder.contents()
        if previous is not None and previous.fingerprint != fitted.fingerprint:
            raise EncoderMismatchError(
                f"The rows in {folder.path} were made by an encoder with the fingerprint {previous.fingerprint}; the "
                f"one saved there has {fitted.fingerprint} with this visterm.",
                setting="out", value=out, advice="Choose another folder as `out`.",
            )  # fmt: skip
        known = KnownRows(folder, previous)
        closed = [Skipped(absolute(item.image).relative_to(root).as_posix(), item.reason) for item in unsearched.closed]
        prefixes = tuple(f"{item.image}/" for item in closed)
        names = sorted([*names, *(name for name in known.names if name.startswith(prefixes))])
        size = shard_size or (previous.shard_size if previous else first_job.shard_size)
        parts = [[names[i] for i in part] for part in cut(names, size)]
        part_executor = for_parts(executor, parts)
        job = EncodeJob(folder, fitted, fitted.get_params(deep=False), root, known)
        part_results = _checked_shards(part_executor.run(job, parts, progress), parts, progress)
        skipped = [*closed, *(item for shard in part_results for item in shard.skipped)]
        nonempty = [shard for shard in part_results if shard.entry is not None]
        contents = Contents(
            images=str(root), n_images=len(names) + len(closed), n_skipped=len(skipped), asked=first_job.fingerprint,
            width=nonempty[0].width if nonempty else 0, layout=nonempty[0].layout if nonempty else "dense",
            shard_size=size, shards=[shard.entry for shard in part_results if shard.entry is not None],
            **facts_of_encoder(fitted),
        )  # fmt: skip
        folder.commit(contents, skipped)
        folder.contents()  # validates the folder before the job reports success

    n_encoded = sum(shard.n_new for shard in part_results)
    return EncodeSummary(
        images=contents.n_images, rows=contents.n_rows, encoded=n_encoded, reused=contents.n_rows - n_encoded,
        gone=len(known.names.keys() - set(names)), skipped=len(skipped), shards=len(contents.shards),
        width=contents.width, layout=contents.layout, encoder=contents.encoder, fingerprint=contents.fingerprint,
        shared=part_executor.remote,
    )  # fmt: skip


def _requested_encoder(
    folder: FeatureFolder, encoder: str | None, params: Mapping[str, object], run: Place | None, n_jobs: int | None
) -> AnyEncoder | None:
    """Return the requested encoder; None if there is no request. Settings alone modify the folder's encoder."""
    requested: AnyEncoder
    if run is not None:
        if encoder is not None or params:
            raise UserError(
                "Both an encoder (or settings of one) and a run are given.",
                setting="encoder", value=encoder, advice="Leave `encoder` or `run` out.",
            )  # fmt: skip
        requested = load_estimator(ENCODERS, open_folder(run, "run"), "encoder").set_known(n_jobs=n_jobs)
    elif encoder is None and params and folder.has_encoder():
        requested, _ = folder.load_encoder(n_jobs)
        settings = {**requested.get_params(deep=False), **params}
        ENCODERS.create(ENCODERS.name_of(requested), **settings)  # raises if a name is unknown
        requested.set_params(**settings)
    elif encoder is not None or params:
        requested = make_encoder(encoder, params, {"random_state": 0, "n_jobs": n_jobs})
    else:
        return None

    requested.check_settings()
    if requested.reads != "pixels":
        name = ENCODERS.name_of(requested)
        raise UserError(
            f"The encoder '{name}' opens no images, so there is nothing to encode.",
            setting="encoder", value=name, advice="Choose one that looks at pixels (visterm encoders lists them).",
        )  # fmt: skip
    return requested


def _encoder_of(folder: FeatureFolder, requested: AnyEncoder | None, n_jobs: int | None) -> tuple[AnyEncoder, FirstJob]:
    """Return the folder's encoder and the first job's request. Refuse a request for another one."""
    encoder, first_job = folder.load_encoder(n_jobs)
    if requested is None:
        return encoder, first_job
    if requested.fingerprint not in (first_job.fingerprint, encoder.fingerprint):
        raise EncoderMismatchError(
            f"{folder.path} has features of another encoder: {_describe(encoder)}; requested: {_describe(requested)}.",
            setting="encoder", value=ENCODERS.name_of(requested),
            advice="Leave `encoder` and its settings out to continue with it, or choose another folder as `out`.",
        )  # fmt: skip
    encoder.set_params(**requested.get_params(deep=False))  # only speed and a network's path may differ
    return encoder, first_job


def _checked_shards(shards: Iterator[PartDone], parts: Sequence[list[str]], progress: Progress) -> list[PartDone]:
    """Return the shards, after checking that no image is missing, and that all rows are of one kind."""
    with reported(progress, "encode photos", sum(map(len, parts))):
        finished = list(shards)
    for names, shard in zip(parts, finished, strict=True):
        n_images = len(shard.skipped) + (shard.entry.rows if shard.entry else 0)
        if n_images != len(names):
            raise StorageError(
                f"A worker returned {count_of(n_images, 'image')} of the {len(names):,} from '{names[0]}' to "
                f"'{names[-1]}'. Run the same command again."
            )

    kinds = sorted({(shard.layout, shard.width) for shard in finished if shard.entry is not None})
    if len(kinds) > 1:
        rows = [f"{layout} rows of {width:,} numbers" for layout, width in kinds]
        raise DataError(f"The encoder returned {rows[0]} and {rows[1]}; expected one kind for all images.")
    return finished


def facts_of_encoder(encoder: AnyEncoder) -> dict[str, Any]:
    """Return the manifest's fields about an encoder."""
    settings = {k: v for k, v in json_params(encoder).items() if k not in encoder.speed_params}
    return {"encoder": ENCODERS.name_of(encoder), "settings": settings, "fingerprint": encoder.fingerprint}


def _describe(encoder: AnyEncoder) -> str:
    facts = facts_of_encoder(encoder)
    return f"'{facts['encoder']}' with {', '.join(f'{k}={v}' for k, v in facts['settings'].items()) or 'no settings'}"


class KnownRows:
    """The rows that the folder had before this job, by the hash of the image, and its undamaged shards by file name."""

    def __init__(self, folder: FeatureFolder, contents: Contents | None) -> None:
        self.width, self.layout = 0, ""
        self.shards: dict[str, ShardEntry] = {}
        self.names: dict[str, str] = {}
        self._stored: dict[str, StoredRow] = {}
        if contents is None:
            return
        self.width, self.layout = contents.width, contents.layout
        self._rows = FolderRows(folder, contents, spare_damaged=True)
        for row in self._rows.stored:
            self.names[row.name] = row.sha256
            self._stored.setdefault(row.sha256, row)
        self.shards = {contents.shards[number].file: contents.shards[number] for number in self._rows.intact}

    def __contains__(self, sha256: str | None) -> bool:
        return sha256 in self._stored

    def take(self, sha256: Sequence[str]) -> Matrix:
        """Return the rows of images with these hashes."""
        return self._rows.take([self._stored[digest] for digest in sha256])


@dataclass(frozen=True)
class EncodeJob:
    """The `Job` that makes the shards of a folder. A part is the list of image names of one shard.

    The process that distributes the parts holds the lock of the folder. The encoder is fitted; other processes load it
    from the folder. `settings` are the encoder's: settings of speed and the path of a network may differ from the saved
    encoder. `known` has the rows from before the job.
    """

    folder: FeatureFolder
    encoder: AnyEncoder | None
    settings: dict[str, object]
    images: Path
    known: KnownRows

    def __getstate__(self) -> dict[str, object]:
        return {**vars(self), "encoder": None}

    def begin(self, team: Team, progress: Progress) -> Callable[[Sequence[str]], PartDone]:
        """Load the encoder if needed, and return the function that makes a shard."""
        require_visible_path(self.folder.path)
        require_visible_path(self.images)
        encoder = self.encoder
        if encoder is None:
            encoder, _ = self.folder.load_encoder(None)
            encoder.set_params(**self.settings).set_known(n_jobs=team.size)
        work = ShardWork(self, encoder, team)
        return lambda names: work.do(names, progress)

    def name_of(self, part: Sequence[str]) -> str:
        """Return a description of a shard by its images."""
        return f"the images from '{part[0]}' to '{part[-1]}'"

    def size_of(self, part: Sequence[str]) -> int:
        """Return the number of images in a shard."""
        return len(part)


class ShardWork(PartWork):
    """Makes the shards of a job one after the other, with a fitted encoder and a team of threads that hash files."""

    command, suffix, fields = "visterm encode", SUFFIX, ("width", "layout")

    def __init__(self, job: EncodeJob, encoder: AnyEncoder, team: Team) -> None:
        known = job.known
        super().__init__(job.folder, known.shards, encoder.fingerprint, width=known.width, layout=known.layout)
        self._images, self._encoder, self._team, self._rows = job.images, encoder, team, known

    def do(self, names: Sequence[str], progress: Progress) -> PartDone:
        """Make the shard of images, given as paths inside the image folder, unless it already exists."""
        paths = [self._images / name for name in names]
        old_stamps = stamps(paths)
        sha256 = self._team.run(lambda i: self._content(names[i], paths[i], old_stamps[i]), len(paths))
        make = partial(self._encoded, names, paths, sha256, old_stamps, progress)
        return self._reuse_or_make(names, sha256, len(names), progress, make)

    def _content(self, name: str, path: Path, stamp: object) -> str | None:
        """Return the hash of an image; if it is not accessible at the moment, its previous hash."""
        if stamp is None and is_there(path):
            return self._rows.names.get(name)
        return stamp_hash(stamp) or content_hash(path)

    def _encoded(
        self,
        names: Sequence[str],
        paths: Sequence[Path],
        sha256: Sequence[str | None],
        old_stamps: Sequence[object],
        progress: Progress,
    ) -> PartDone:
        """Encode new images and write the rows of all images, in order; list unreadable images with reasons."""
        to_encode = [i for i, digest in enumerate(sha256) if digest not in self._rows]
        to_reuse = [i for i, digest in enumerate(sha256) if digest in self._rows]
        progress.advance(len(to_reuse))
        parts: list[Matrix] = []
        positions = list(to_reuse)
        reasons: dict[int, str] = {}
        if to_reuse:
            parts.append(self._rows.take([digest for i in to_reuse if (digest := sha256[i]) is not None]))

        if to_encode:
            rows, kept, failed = self._encoder.encode([paths[i] for i in to_encode], progress=StepProgress(progress))
            reason_of = {item.image: item.reason for item in failed}
            encoded = [to_encode[k] for k in kept]
            new_stamps = stamps([paths[i] for i in encoded])
            reasons = {i: reason_of[str(paths[i])] for i in sorted(set(to_encode) - set(encoded))}
            for i, stamp in zip(encoded, new_stamps, strict=True):
                if sha256[i] is None or old_stamps[i] != stamp:
                    reasons[i] = CHANGED
            usable_rows = [row for row, i in enumerate(encoded) if i not in reasons]
            if usable_rows:
                parts.append(rows if len(usable_rows) == len(encoded) else rows[usable_rows])
                positions += [encoded[row] for row in usable_rows]

        skipped = [Skipped(names[i], reasons[i]) for i in sorted(reasons)]
        if not positions:
            return PartDone(None, skipped, 0)
        order = np.argsort(positions)
        indices = [positions[k] for k in order]
        shard = Shard([names[i] for i in indices], [str(sha256[i]) for i in indices], stack_rows(parts)[order])
        entry = self._write(shard.names, shard.sha256, len(indices), partial(shard_bytes, shard))
        layout = "sparse" if sp.issparse(shard.rows) else "dense"
        return PartDone(entry, skipped, len(positions) - len(to_reuse), shard.rows.shape[1], layout)
