"""Everything that a fit can be given: one request for the command line, Python and the service."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from inspect import signature
from pathlib import Path
from typing import Any, TypeAlias

from visterm.core.errors import EncoderMismatchError, UserError
from visterm.core.persist import check_replaceable
from visterm.core.tables import ENCODERS, MODELS
from visterm.data.query_files import QueryRow
from visterm.data.tag_rules import Rules, TagRules
from visterm.data.word_vectors import WordVectors
from visterm.encoders.named import registered_name
from visterm.features.contents import is_features
from visterm.features.remote_folder import feature_folder
from visterm.features.training_rows import Photos
from visterm.learning.part_settings import DEFAULT_MODEL, DEVICE, check_device
from visterm.learning.relations import WordRelations

Place: TypeAlias = "str | os.PathLike[str]"


@dataclass(frozen=True, kw_only=True)
class FitRequest:
    """What to learn from, by what, and where the run goes. Each option of ``visterm fit`` is a field."""

    images: Photos | Sequence[Place] | None = None
    """A folder, or the images themselves (paths, Pillow images or uint8 arrays); a DataFrame or a list of dicts with a
    column of images, and maybe one of tags; or features folders (`visterm encode`), whose encoder the run then has.
    With the encoders ``ids`` and ``precomputed``: names, or None where the tags have them."""
    tags: Any = "auto"
    """A tag file, or a DataFrame or a list of dicts in its place; ``"auto"`` to find it in the folder or in the table
    of the images; or the tags of each image (`visterm.features.training_rows.tag_lists`). None, with queries: learn all
    words of the queries."""
    queries: Place | Sequence[QueryRow] | None = None
    """Learn from queries and the images that are relevant to them. With tags, only these are words."""
    split: str | None = None
    """Learn from these rows only. None: from those of the split "train", if there are splits."""
    tag_rules: Rules = None
    """What cleans and relates tags, and how their file is written: a TOML file, or its keys and values (`TagRules`)."""
    idf: Place | None = None
    """A reference corpus, a text each line: the words of a query weigh by how few of its texts have them, in searches
    and where a model makes queries of tags. None: by how few training images do."""
    encoder: str | None = None
    """A name from ``visterm encoders``; what stands after a colon is the encoder's argument (``"onnx:network.onnx"``).
    None: the first network that is on this machine, or else "visterms"; for features, the one that made them."""
    model: str | None = None
    """A name from ``visterm models``. None: "auto", or "wsabie" for images known by number."""
    encoder_params: Mapping[str, object] = field(default_factory=dict)
    """Settings of the encoder."""
    model_params: Mapping[str, object] = field(default_factory=dict)
    """Settings of the model."""
    device: str | None = None
    """Where networks run: "cpu", "cuda" or "auto"; those of onnxruntime also on others."""
    word_vectors: Place | WordVectors | None = None
    """Where models with the setting `word_vectors` start from: the encoder's text tower ("encoder", which `text_ridge`
    takes if nothing else is said), a file, the tags' own company in the tag lists, a
    sentence network (extra ``text``), or given vectors, which the run then keeps. But for learned ones, words that are
    no tags then have a place, too: in searches, and by `Tagger.add_words`."""
    words: Place | Collection[str] = ()
    """Words, or a file with one a line, that are tags even where no photo has them yet: they are found by their
    vectors (`word_vectors`). With them the photos need not have a tag."""
    valid: float | None = None
    """For models that stop by validation images: the share of the training images held out to find out when; then they
    learn from all. Rows of a split "valid" are used instead where there are some. 0 holds out none; None leaves it to
    the model."""
    calibrate: bool = True
    """Whether to fit confidences to the scores of images that were not learned from, so that searches can say where
    likely images end. It takes almost no time where images are held out anyway; other models take one more fit, on four
    fifths of the images."""
    min_count: int = 1
    """Tags of fewer training images are left out."""
    relations: WordRelations | None = None
    """Which tags are parts of which, and kinds of what: kept with the run, and passed to models that learn from parts
    (those with the setting `part_of`). None: read from what `tag_rules` names."""
    tree: Place | Sequence[tuple[str, str]] | None = None
    """The tree of the tags: a table of child,parent (a file, or pairs), or ``"paths"``, where tags are paths such as
    ``animals/dog/husky`` (`visterm.data.tag_tree`). A photo of a child then has its parents, too."""
    memory: int | None = None
    """Bytes that may be used: features that take more are streamed from disk. None: half of the machine's."""
    work: Place | None = None
    """A folder for the files of a streamed fit on the way. None: beside `out`."""
    n_jobs: int | None = None
    """Threads; None is all cores."""
    seed: int = 0
    """Same seed, same photos: same bytes."""
    out: Place | None = None
    """The run to write; None keeps it in memory."""
    overwrite: bool = False
    """Replace a run that lies at `out`."""

    @property
    def learns_tags(self) -> bool:
        """Return whether tags are learned; else the words of queries are."""
        return self.queries is None or self.tags is not None

    @cached_property
    def rules(self) -> TagRules:
        """Return the tag rules, read and checked."""
        return TagRules.of(self.tag_rules)

    def check(self) -> None:
        """Refuse what cannot be used, before the encoder and the model are made.

        Raises UserError if word vectors are named as a setting of the model; EncoderMismatchError if features are given
        that another encoder made than the requested one; StorageError if something that is not a run lies at `out`.
        """
        if self.out is not None:
            check_replaceable(self.out, "run", overwrite=self.overwrite)
        if self.encoder is not None:
            for folder in filter(is_features, self.images if isinstance(self.images, list | tuple) else [self.images]):
                contents = feature_folder(folder).contents()
                if contents is not None and contents.encoder != registered_name(self.encoder):
                    raise EncoderMismatchError(
                        f"The features in {folder} were made by the encoder '{contents.encoder}', not by "
                        f"'{self.encoder}'.",
                        setting="encoder", value=self.encoder,
                        advice="Leave `encoder` out, or pass the folder of photos in place of the features.",
                    )  # fmt: skip
        vectors = self.model_params.get("word_vectors")
        if isinstance(vectors, str):
            raise UserError(
                "`model.word_vectors` takes a matrix.",
                setting="model.word_vectors", value=vectors,
                advice="Name a file, sentences or learned as `word_vectors` instead.",
            )  # fmt: skip

    def part_settings(self) -> tuple[dict[str, object], dict[str, object]]:
        """Return the settings of the encoder and of the model, with the device as far as they have such a setting.

        Raises UserError if neither has, it is given already, or there is no such device here.
        """
        encoder_params, model_params = dict(self.encoder_params), dict(self.model_params)
        if self.device is None:
            return encoder_params, model_params
        model, encoder = self.model or DEFAULT_MODEL, registered_name(self.encoder)
        parts = (("model", MODELS.load(model), model_params), ("encoder", ENCODERS.load(encoder), encoder_params))
        able = [part for part in parts if DEVICE in signature(part[1]).parameters]
        if not able:
            raise UserError(
                f"Neither the model '{model}' nor the encoder '{encoder}' runs a network of torch or ONNX, so there is "
                "no device to choose.",
                setting="device", value=self.device, advice="Leave `device` out.",
            )  # fmt: skip

        for part, kind, params in able:
            if DEVICE in params:
                raise UserError(
                    f"The device is given twice: by `device` and by `{part}.device`.",
                    setting="device", value=self.device, advice="Leave one out.",
                )  # fmt: skip
            check_device(self.device, kind)
            params[DEVICE] = self.device
        return encoder_params, model_params

    def work_folder(self, name: str) -> Path:
        """Return the folder for files on the way. Raises UserError if neither it nor the run's own place is named."""
        if self.work:
            return Path(self.work)
        if self.out is None:
            raise UserError(
                "This fit keeps files on the way, and has no folder for them.",
                setting="work", advice="Pass a folder as `work`, or `out` to have them beside the run.",
            )  # fmt: skip
        out = Path(self.out).absolute()
        return out.with_name(f".{out.name}.{name}")
