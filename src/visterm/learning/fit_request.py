"""All inputs and options of a fit, in one request for the command line, Python and the service."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from inspect import signature
from pathlib import Path
from typing import Any

from visterm.core.errors import EncoderMismatchError, UserError
from visterm.core.persist import check_replaceable
from visterm.core.tables import ENCODERS, MODELS
from visterm.core.types import Place
from visterm.data.data_sets import is_data_set
from visterm.data.tag_queries import QueryRow
from visterm.data.tag_rules import Rules, TagRules
from visterm.data.word_vectors import WordVectors
from visterm.encoders.contract import AnyEncoder
from visterm.encoders.named import encoder_name
from visterm.features.folder import is_features
from visterm.features.remote_folder import feature_folder
from visterm.features.training_rows import Photos
from visterm.learning.part_settings import DEFAULT_MODEL, DEVICE, check_device
from visterm.learning.relations import WordRelations
from visterm.models.base import Annotator
from visterm.models.sklearn_model import SklearnEstimator, as_model


@dataclass(frozen=True, kw_only=True)
class FitRequest:
    """The images, the encoder, the model and the output of a fit; `visterm.fit` describes the fields.

    Each option of ``visterm fit`` is a field.
    """

    images: Photos | Sequence[Place] | None = None
    tags: Any = "auto"
    queries: Place | Sequence[QueryRow] | None = None
    split: str | None = None
    tag_rules: Rules = None
    idf: Place | None = None
    encoder: str | AnyEncoder | None = None
    model: str | Annotator | SklearnEstimator | None = None
    encoder_params: Mapping[str, object] = field(default_factory=dict)
    model_params: Mapping[str, object] = field(default_factory=dict)
    device: str | None = None
    word_vectors: Place | WordVectors | None = None
    words: Place | Collection[str] = ()
    valid: float | None = None
    calibrate: bool = True
    min_count: int = 1
    relations: WordRelations | None = None
    tree: Place | Sequence[tuple[str, str]] | None = None
    memory: int | None = None
    work: Place | None = None
    n_jobs: int | None = None
    seed: int = 0
    out: Place | None = None
    overwrite: bool = False

    def __post_init__(self) -> None:
        if self.encoder is None and self.images is None and is_data_set(self.tags):
            object.__setattr__(self, "encoder", "data_set")

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
            if self.model is not None and not isinstance(self.model, str):
                MODELS.saved_name(as_model(self.model))
        if self.encoder is not None:
            for folder in filter(is_features, self.images if isinstance(self.images, list | tuple) else [self.images]):
                contents = feature_folder(folder).contents()
                if contents is not None and contents.encoder != (name := encoder_name(self.encoder)):
                    name = self.encoder if isinstance(self.encoder, str) else name
                    raise EncoderMismatchError(
                        f"The features in {folder} were made by the encoder '{contents.encoder}', not by '{name}'.",
                        setting="encoder", value=name,
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
        model, encoder = self.model or DEFAULT_MODEL, encoder_name(self.encoder)
        model_class = MODELS.load(model) if isinstance(model, str) else type(model)
        parts = (("model", model_class, model_params), ("encoder", ENCODERS.load(encoder), encoder_params))
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

    def work_folder(self) -> Path:
        """Return the folder for temporary files. Raises UserError if neither `work` nor `out` is set."""
        if self.work:
            return Path(self.work)
        if self.out is None:
            raise UserError(
                "This fit writes temporary files, and has no folder for them.",
                setting="work", advice="Pass a folder as `work`, or pass `out` to write them next to the run.",
            )  # fmt: skip
        out = Path(self.out).absolute()
        return out.with_name(f".{out.name}.streaming")
