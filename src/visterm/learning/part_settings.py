"""The parts of a run from what users type: names, settings and the device; and which models can do what."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from inspect import signature
from typing import Any

from visterm.core.errors import MissingExtraError, UserError
from visterm.core.queries import COMBINATIONS
from visterm.core.registry import Registry
from visterm.core.tables import ENCODERS, MODELS
from visterm.encoders.contract import AnyEncoder
from visterm.encoders.named import make_encoder
from visterm.learning.learned import Learned
from visterm.models.abilities import GivesProbabilities
from visterm.models.base import Annotator

DEFAULT_MODEL, DEFAULT_BY_NUMBER = "auto", "wsabie"
"""On no data set was the best single model clearly ahead of `auto` in MAP over images (docs/benchmarks.md).
Of images known only by number it could judge nothing."""

DEVICE = "device"  # The setting that says where networks run
_DEVICES = ("auto", "cpu", "cuda", "mps", "xpu", "coreml", "openvino", "directml")


def make_model(
    name: str | None, params: Mapping[str, object], shared: Mapping[str, object], *, by_number: bool = False
) -> Annotator:
    """Make a model with its settings; of the shared ones (seed, threads) it gets those that it has.

    None is the default model, which is another one where images are known by number.
    """
    name = name or (DEFAULT_BY_NUMBER if by_number else DEFAULT_MODEL)
    known = signature(MODELS.load(name)).parameters
    model: Annotator = MODELS.create(name, **{key: shared[key] for key in shared if key in known} | dict(params))
    return model


def unfitted_parts(
    encoder: str | None,
    model: str | None,
    encoder_params: Mapping[str, object],
    model_params: Mapping[str, object],
    *,
    seed: int,
    n_jobs: int | None,
) -> tuple[Learned, bool]:
    """Make an encoder and a model that have learned nothing, and return whether the encoder may be any other.

    Names of None are the defaults.
    """
    shared = {"random_state": seed, "n_jobs": n_jobs}
    made = make_encoder(encoder, encoder_params, shared)
    parts = Learned(encoder=made, model=make_model(model, model_params, shared, by_number=made.by_number))
    return parts, encoder is None and not encoder_params


def names_with(table: Registry, able: Callable[[Any], bool]) -> Iterator[str]:
    """Yield the names of the parts whose class is able to do something, as far as their packages are installed."""
    for name in table.names():
        try:
            part = table.load(name)
        except MissingExtraError:
            continue
        if able(part):
            yield name


def check_combination(combine: str, model: Annotator) -> None:
    """Refuse a way to put words together that there is not, or that the scores of a model do not allow.

    Raises UserError if there is no such way, or the product is asked for and the scores are not probabilities.
    """
    if combine not in COMBINATIONS:
        raise UserError(setting="combine", value=combine, expected=f"one of {', '.join(map(repr, COMBINATIONS))}")
    if combine == "product" and not isinstance(model, GivesProbabilities):
        able = ", ".join(names_with(MODELS, lambda part: hasattr(part, "probabilities")))
        raise UserError(
            f"The scores of the model '{MODELS.name_of(model)}' are not probabilities, so words are not combined by "
            "their product.",
            setting="combine", value=combine, advice=f"Search by the sum, or fit one of {able}.",
        )  # fmt: skip


def move_encoder(encoder: AnyEncoder, device: str) -> None:
    """Let the networks of a fitted encoder, or of those inside it, run on another device from now on.

    Raises UserError if it has none, or there is no such device here.
    """
    parts = _with_device(encoder)
    if not parts:
        raise UserError(
            f"The encoder '{ENCODERS.name_of(encoder)}' of this run has no network of torch or ONNX, and models "
            "that are trained score without one, so there is no device to choose.",
            setting="device", value=device, advice="Leave `device` out.",
        )  # fmt: skip
    for part in parts:
        check_device(device, type(part))
        part.set_params(**{DEVICE: device})


def device_lines(encoder: AnyEncoder) -> list[str]:
    """Name the device on which each network of an encoder, or of those inside it, runs; opens them for that."""
    return [
        f"The network of the encoder '{ENCODERS.name_of(part)}' runs on: {part.runs_on}"
        for part in _with_device(encoder)
    ]


def check_device(device: str, part: object) -> None:
    """Refuse a device that the libraries of a class cannot use here, before anything is read: UserError if so."""
    if device.partition(":")[0] not in _DEVICES:
        raise UserError(
            setting="device", value=device,
            expected="cpu, cuda or auto, or for networks of ONNX coreml, openvino or directml",
        )  # fmt: skip
    if hasattr(part, "check_device"):
        part.check_device(device)
    elif device not in ("auto", "cpu"):  # which need not load torch
        from visterm.encoders.torch_loading import torch_device

        torch_device(device)


def _with_device(encoder: AnyEncoder) -> list[Any]:
    """Return the encoder and those inside it that run a network."""
    return [part for part in (encoder, *getattr(encoder, "parts_", ())) if hasattr(part, DEVICE)]
