"""All inputs and options of a fit, in one request for the command line, Python and the service."""

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
    """The images, the encoder, the model and the output of a fit. Each option of ``visterm fit`` is a field."""

    images: Photos | Sequence[Place] | None = None
    """A folder, or the images themselves (paths, Pillow images or uint8 arrays); a DataFrame or a list of dicts with a
    column of images and, optionally, one of tags; or features folders (`visterm encode`), whose encoder the run uses.
    With the encoders ``ids`` and ``precomputed``: names of images, or None if the tag file has the names."""
    tags: Any = "auto"
    """A tag file, a DataFrame or a list of dicts; ``"auto"`` to find the tags in the folder or in the table of the
    images; or the tags of each image (`visterm.features.training_rows.tag_lists`). None, with queries: learn all words
    of the queries."""
    queries: Place | Sequence[QueryRow] | None = None
    """Learn from queries and the images that are relevant to them. With `tags`, only words that are tags count."""
    split: str | None = None
    """Learn from the rows of this split only. None: from the split "train", or from all rows if there are no splits."""
    tag_rules: Rules = None
    """How to clean and relate tags and to read the tag file: a TOML file, or its keys and values (`TagRules`)."""
    idf: Place | None = None
    """A reference corpus with one text per line, which weighs the words of queries: the rarer a word is in the texts,
    the more it weighs. None: the frequencies of words among the training images are used instead."""
    encoder: str | None = None
    """A name from ``visterm encoders``, with the encoder's argument after a colon (``"onnx:network.onnx"``).
    None: the first network that is on this machine, or else "visterms"; for features, the encoder that made them."""
    model: str | None = None
    """A name from ``visterm models``. None: "auto"."""
    encoder_params: Mapping[str, object] = field(default_factory=dict)
    """Settings of the encoder."""
    model_params: Mapping[str, object] = field(default_factory=dict)
    """Settings of the model."""
    device: str | None = None
    """Where networks run: "cpu", "cuda" or "auto"; onnxruntime also supports other devices."""
    word_vectors: Place | WordVectors | None = None
    """The start values of models with the setting `word_vectors`: the encoder's text tower ("encoder", the default of
    `text_ridge`), a file, vectors learned from the tag lists ("learned"), a sentence network ("sentences", extra
    ``text``), or vectors in memory, which are saved with the run. Except with "learned", you can also search for words
    that are not tags, and add them with `Tagger.add_words`."""
    words: Place | Collection[str] = ()
    """Words that become tags even if no photo has them yet, or a file with one word per line. They are found by their
    vectors (`word_vectors`). With them, no photo needs a tag."""
    valid: float | None = None
    """For models that stop early: the share of the training images that is held out to choose the number of epochs;
    the model then learns from all images. Rows of a split "valid" are used instead, if there are any. 0 holds out no
    images; None uses the model's own share."""
    calibrate: bool = True
    """Whether to fit confidences to the scores of held-out images, so that searches can show which images are likely
    matches. It takes almost no time if the model holds out images anyway; other models are fitted once more, on four
    fifths of the images."""
    min_count: int = 1
    """Leave out tags with fewer training images."""
    relations: WordRelations | None = None
    """Part-of and is-a relations between tags: saved with the run, and passed to models that learn from parts (models
    with the setting `part_of`). None: read from the files that `tag_rules` names."""
    tree: Place | Sequence[tuple[str, str]] | None = None
    """The tree of the tags: a table of child,parent (a file, or pairs), or ``"paths"``, where tags are paths such as
    ``animals/dog/husky`` (`visterm.data.tag_tree`). A photo of a child then has its parents, too."""
    memory: int | None = None
    """Maximum memory in bytes: larger features are streamed from disk. None: half of the machine's memory."""
    work: Place | None = None
    """A folder for the temporary files of a streamed fit. None: next to `out`."""
    n_jobs: int | None = None
    """Number of threads; None: one per core."""
    seed: int = 0
    """Random seed: the same seed and photos give the same bytes."""
    out: Place | None = None
    """Path of the run to write; None keeps the run in memory."""
    overwrite: bool = False
    """Whether to replace an existing run at `out`."""

    @property
    def learns_tags(self) -> bool:
        """Return whether the fit learns tags; otherwise it learns the words of queries."""
        return self.queries is None or self.tags is not None

    @cached_property
    def rules(self) -> TagRules:
        """Return the tag rules, read and checked."""
        return TagRules.of(self.tag_rules)

    def check(self) -> None:
        """Check the request before the encoder and the model are created.

        Raises UserError if word vectors are named as a setting of the model; EncoderMismatchError if the features were
        made by another encoder than the requested one; StorageError if the path `out` exists and is not a run.
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
        word_vectors = self.model_params.get("word_vectors")
        if isinstance(word_vectors, str):
            raise UserError(
                "`model.word_vectors` takes a matrix.",
                setting="model.word_vectors", value=word_vectors,
                advice="Name a file, sentences or learned as `word_vectors` instead.",
            )  # fmt: skip

    def part_settings(self) -> tuple[dict[str, object], dict[str, object]]:
        """Return the settings of the encoder and of the model, with `device` added if the class has this setting.

        Raises UserError if neither class has it, if a device is set twice, or if this machine doesn't have the device.
        """
        encoder_params, model_params = dict(self.encoder_params), dict(self.model_params)
        if self.device is None:
            return encoder_params, model_params
        model, encoder = self.model or DEFAULT_MODEL, registered_name(self.encoder)
        parts = (("model", MODELS.load(model), model_params), ("encoder", ENCODERS.load(encoder), encoder_params))
        parts_with_device = [part for part in parts if DEVICE in signature(part[1]).parameters]
        if not parts_with_device:
            raise UserError(
                f"Neither the model '{model}' nor the encoder '{encoder}' runs a network of torch or ONNX, so there is "
                "no device to choose.",
                setting="device", value=self.device, advice="Leave `device` out.",
            )  # fmt: skip

        for part, factory, params in parts_with_device:
            if DEVICE in params:
                raise UserError(
                    f"The device is given twice: by `device` and by `{part}.device`.",
                    setting="device", value=self.device, advice="Leave one out.",
                )  # fmt: skip
            check_device(self.device, factory)
            params[DEVICE] = self.device
        return encoder_params, model_params

    def work_folder(self, name: str) -> Path:
        """Return the folder for temporary files. Raises UserError if neither `work` nor `out` is set."""
        if self.work:
            return Path(self.work)
        if self.out is None:
            raise UserError(
                "This fit writes temporary files, and has no folder for them.",
                setting="work", advice="Pass a folder as `work`, or pass `out` to write them next to the run.",
            )  # fmt: skip
        out = Path(self.out).absolute()
        return out.with_name(f".{out.name}.{name}")
