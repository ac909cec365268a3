"""Make the parts of a run from names, settings and the device, and list the parts that have an ability."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from visterm.core.checks import check_choice
from visterm.core.errors import MissingExtraError, UserError
from visterm.core.queries import COMBINATIONS
from visterm.core.registry import TableEntry
from visterm.core.tables import ENCODERS, MODELS
from visterm.encoders.contract import AnyEncoder
from visterm.encoders.named import make_encoder
from visterm.learning.learned import Learned
from visterm.models.base import Annotator
from visterm.models.sklearn_model import SklearnEstimator, as_model

DEFAULT_MODEL = "auto"
"""On no data set, the best single model was clearly better than `auto` in MAP over images (docs/benchmarks.md)."""

DEVICE = "device"  # The setting for the device of networks
_DEVICES = ("auto", "cpu", "cuda", "mps", "xpu", "coreml", "openvino", "directml")


def make_model(
    name: str | Annotator | SklearnEstimator | None, params: Mapping[str, object], options: Mapping[str, object]
) -> Annotator:
    """Make a model with the settings `params`, and with those of the settings `options` (seed, threads) that it has.

    A name of None means the default model. A model, or an estimator of scikit-learn (`as_model`), is copied, unfitted,
    and keeps its seed. Raises UserError for anything else, such as a class.
    """
    if name is not None and not isinstance(name, str):
        return as_model(name).set_params(**params)
    name = name or DEFAULT_MODEL
    known = MODELS.load(name)._get_param_names()
    model: Annotator = MODELS.create(name, **{key: options[key] for key in options if key in known} | dict(params))
    return model


def unfitted_parts(
    encoder: str | AnyEncoder | None,
    model: str | Annotator | SklearnEstimator | None,
    encoder_params: Mapping[str, object],
    model_params: Mapping[str, object],
    *,
    seed: int,
    n_jobs: int | None,
) -> tuple[Learned, bool]:
    """Make an unfitted encoder and model; return them, and whether features may replace the encoder.

    Names of None mean the defaults.
    """
    options = {"random_state": seed, "n_jobs": n_jobs}
    instance = make_encoder(encoder, encoder_params, options)
    parts = Learned(encoder=instance, model=make_model(model, model_params, options))
    return parts, encoder is None and not encoder_params


def names_with(entries: Iterable[TableEntry], has_ability: Callable[[Any], bool]) -> Iterator[str]:
    """Yield the names of the parts whose class passes the test `has_ability`; parts with missing packages are left out.

    `entries` is a table, or some of its entries: importing every encoder of every package takes seconds.
    """
    for entry in entries:
        try:
            part = entry.load()
        except MissingExtraError:
            continue
        if has_ability(part):
            yield entry.name


def check_combination(combine: str, model: Annotator) -> None:
    """Check that `combine` is a way to combine words, and that the model's scores allow it.

    Raises UserError if it is not a valid way, or if it is "product" and the scores are not probabilities.
    """
    check_choice(combine, "combine", COMBINATIONS)
    if combine == "product" and not hasattr(model, "probabilities"):
        able_models = ", ".join(names_with(MODELS, lambda part: hasattr(part, "probabilities")))
        raise UserError(
            f"The scores of the model '{MODELS.name_of(model)}' are not probabilities, so words are not combined by "
            "their product.",
            setting="combine", value=combine, advice=f"Search by the sum, or fit one of {able_models}.",
        )  # fmt: skip


def move_encoder(encoder: AnyEncoder, device: str) -> None:
    """Run the networks of a fitted encoder, and of the encoders inside it, on another device from now on.

    Raises UserError if it has no network, or this machine doesn't have the device.
    """
    parts = _parts_with_device(encoder)
    if not parts:
        raise UserError(
            f"The encoder '{ENCODERS.name_of(encoder)}' of this run has no network of torch or ONNX, and models only "
            "need one for training, so there is no device to choose.",
            setting="device", value=device, advice="Leave `device` out.",
        )  # fmt: skip
    for part in parts:
        check_device(device, type(part))
        part.set_params(**{DEVICE: device})


def device_lines(encoder: AnyEncoder) -> list[str]:
    """Return a line about the device of each network of an encoder; this opens the networks."""
    return [
        f"The network of the encoder '{ENCODERS.name_of(part)}' runs on: {part.runs_on}"
        for part in _parts_with_device(encoder)
    ]


def check_device(device: str, part: object) -> None:
    """Raise UserError if the libraries of the class `part` cannot use a device on this machine."""
    if device.partition(":")[0] not in _DEVICES:
        raise UserError(
            setting="device", value=device,
            expected="cpu, cuda or auto, or for networks of ONNX coreml, openvino or directml",
        )  # fmt: skip
    if hasattr(part, "check_device"):
        part.check_device(device)
    elif device not in ("auto", "cpu"):  # "auto" and "cpu" don't need torch
        from visterm.encoders.torch_loading import torch_device

        torch_device(device)


def _parts_with_device(encoder: AnyEncoder) -> list[Any]:
    """Return the encoders that run a network: this encoder, and the encoders inside it."""
    return [part for part in (encoder, *getattr(encoder, "parts_", ())) if hasattr(part, DEVICE)]
