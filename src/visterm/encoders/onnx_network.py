"""An opened ONNX network: its input, the output that is read, and how an output becomes a row."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray
from onnxruntime.capi import onnxruntime_pybind11_state as ort_errors

from visterm.core.errors import DataError, StorageError, UnknownNameError, UserError
from visterm.core.registry import unknown
from visterm.core.writing import in_bytes
from visterm.encoders.onnx_graph import averaged_into, before_classes, missing, read_network, weight_files, with_outputs
from visterm.encoders.onnx_settings import as_layout, embedded_settings
from visterm.encoders.preparation import (
    Numbers,
    Preparation,
    Settings,
    as_size,
    channels_last,
    map_averaging_to,
    pooled,
)

if TYPE_CHECKING:
    from visterm.encoders.onnx_graph import GraphSteps

FEATURE_NAMES = ("features", "embeddings", "embedding", "image_embeds", "text_embeds", "pooled", "pooler_output")
"""Names of outputs that are read by default if a network has several, in order of preference."""
WEIGHTS_FOLDER_KEY = "session.model_external_initializers_file_folder_path"
_INPUT_DTYPES: Final = {"tensor(uint8)": np.uint8, "tensor(float)": np.float32, "tensor(float16)": np.float16}
PROVIDERS: Final = {
    "cuda": "CUDAExecutionProvider",
    "openvino": "OpenVINOExecutionProvider",
    "coreml": "CoreMLExecutionProvider",
    "directml": "DmlExecutionProvider",
}
"""onnxruntime's names of the devices that it may be built for; "auto" is the first one available."""
LARGE_NETWORK: Final = 2**26  # Bytes of weights that are read from memory, not from a cache, at each call
CPU_BATCHES: Final = (2, 4)  # Pictures that a small and a large network process at once on the CPU: the quickest
CPU: Final = "CPUExecutionProvider"
OPEN_ERRORS = (
    ort_errors.EPFail, ort_errors.Fail, ort_errors.InvalidArgument, ort_errors.InvalidGraph, ort_errors.InvalidProtobuf,
    ort_errors.NoSuchFile, ort_errors.NotImplemented, ort_errors.RuntimeException, MemoryError, UnicodeDecodeError,
)  # fmt: skip
"""Errors that onnxruntime raises for files that are broken, hostile, or need more memory than available."""
MAX_MESSAGE_LENGTH = 400  # Maximum length of onnxruntime's messages that are passed on


class OnnxNetwork:
    """An image network of an ONNX file, ready to run. On the CPU, an image's row does not depend on its batch.

    On the CPU, a session runs on the caller's thread alone, and any number of threads may call it: results are the same
    bytes, and it is faster than the runtime's own threads (MobileNetV2 on 2 cores). Images are run a few at a time
    (`CPU_BATCHES`) if a test shows that this leaves every row the same, byte for byte, and otherwise one at a time. On
    another `device` (one of `PROVIDERS`, or "auto") all images of a call are run together, unless the network takes one
    at a time.

    `settings` describe the network: attributes of `Preparation`, ``output`` (None: the only one, or one with a name of
    features), ``pooling`` (one of `POOLINGS`) and ``layout`` (None: read from the network's input and, for maps, from
    their axes). The rest is taken from the metadata and the input of the network. The output read is `output`, one of
    `outputs`, or a tensor before it if the pooling is "before_classes". Pixels are passed as `dtype` (uint8 unchanged,
    float32 or float16), (height, width, 3) with `channels_last` and otherwise (3, height, width).

    Raises StorageError if the file is missing or not an ONNX network; UserError if the network does not take one image,
    a setting is wrong or contradicts it, or onnxruntime has no such device here; UnknownNameError if the output does
    not exist.
    """

    def __init__(self, path: str, settings: Settings, device: str = "cpu") -> None:
        self.path = path
        self._session = open_session(path, device=device)
        self.pooling = settings.get("pooling")
        layout = settings.get("layout")
        self._input, self.dtype, self.channels_last, self._takes_one, fixed = _image_input(path, self._session, layout)
        self._map_layout = None if layout is None else as_layout(layout)[1]

        files = [path, *(os.path.join(os.path.dirname(path), name) for name in weight_files(path))]
        self._cpu_batch = CPU_BATCHES[sum(map(os.path.getsize, files)) > LARGE_NETWORK]

        self.outputs = [output.name for output in self._session.get_outputs()]
        self.output = chosen_output(path, self.outputs, settings.get("output"))
        self._gives_maps = len(self._session.get_outputs()[self.outputs.index(self.output)].shape or []) == 4
        embedded = embedded_settings(self._session.get_modelmeta().custom_metadata_map)

        if self.pooling == "before_classes":
            model = read_network(path)
            self.output = before_classes(model, self.output)
            self._session = open_session(path, with_outputs(model, [self.output]), device=device)
            self._gives_maps = False

        prepared = {k: v for k, v in settings.items() if k not in ("output", "layout", "pooling")}
        size = _sides(path, prepared.pop("size", None), fixed)
        try:
            self.preparation = Preparation(**{**embedded, **prepared, **({} if size is None else {"size": size})})
        except UserError as error:
            problem = f"{path}: {error.setting} is {error.value!r}."
            raise UserError(problem, setting=error.setting, value=error.value, expected=error.expected) from error

    @property
    def runs_on(self) -> str:
        """The name of the device in use, as in `PROVIDERS`, or "cpu"."""
        first = self._session.get_providers()[0]
        return next((name for name, provider in PROVIDERS.items() if provider == first), "cpu")

    @property
    def is_batch_independent(self) -> bool:
        """Whether a row is the same in any batch: on the CPU, or if the network takes one picture at a time."""
        return self._takes_one or self.runs_on == "cpu"

    def rows(self, pictures: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Return the rows, (n, n_features), of pictures, (n, height, width, 3).

        Raises DataError if an output is not finite, or is not rows, tokens or maps.
        """
        if not self.is_batch_independent:
            return self._run(pictures)
        step = self._cpu_batch if len(pictures) >= self._cpu_batch and self._can_batch else 1
        n_in_batches = len(pictures) // step * step
        parts = [self._run(pictures[i : i + step]) for i in range(0, n_in_batches, step)]
        return np.concatenate([*parts, *(self._run(pictures[i : i + 1]) for i in range(n_in_batches, len(pictures)))])

    @cached_property
    def _can_batch(self) -> bool:
        """Whether pictures run together give the same bytes as each alone: tested once, on random pictures.

        How a runtime computes depends on shapes, not on values. An int8 network may compute its scales over the batch.
        """
        if self._takes_one:
            return False
        drawn = np.random.default_rng(0).integers(0, 256, (self._cpu_batch, *self.preparation.size, 3), np.uint8)
        drawn[-1] //= 8  # a different range than the rest
        try:
            return np.array_equal(self._run(drawn), np.concatenate([self._run(picture[None]) for picture in drawn]))
        except (StorageError, DataError):  # it takes only one at a time without declaring it
            return False

    def _run(self, pictures: NDArray[np.uint8]) -> NDArray[np.float32]:
        (out,) = run_session(self._session, self.path, [self.output], self.feed(pictures))
        return self.pooled(out, len(pictures))

    def feed(self, pictures: NDArray[np.uint8]) -> dict[str, Numbers]:
        """Return a session's input for pictures, shape (n, height, width, 3)."""
        preparation = self.preparation
        images: Numbers = preparation.ordered(pictures) if self.dtype is np.uint8 else preparation.numbers(pictures)
        images = images if self.channels_last else images.transpose(0, 3, 1, 2)
        return {self._input: np.ascontiguousarray(images, dtype=self.dtype)}

    def pooled(self, out: Numbers, n_pictures: int) -> NDArray[np.float32]:
        """Turn the output for `n_pictures` pictures into rows; maps are averaged over places."""
        label, is_last = f"The output '{self.output}' of {self.path}", out.ndim == 4 and self._are_last(out)
        return pooled(out, n_pictures, label, channels_last=is_last, pooling=self.pooling)

    def maps(self, pictures: Iterable[NDArray[np.uint8]]) -> list[NDArray[np.float64]]:
        """Return the feature map of each picture, (rows, columns, n_features); its mean over places is the row.

        If the output is not a map itself, the network is opened a second time, with the tensors before its output as
        further outputs. Raises UserError if the output is not the average of a map.
        """
        names, session = [self.output], self._session
        if not self._gives_maps:
            model = read_network(self.path)
            names += averaged_into(model, self.output)
            session = open_session(self.path, with_outputs(model, [name for name in names if name not in self.outputs]))
        maps = []

        for picture in pictures:
            tensors = run_session(session, self.path, names, self.feed(picture[None]))
            row = self.pooled(tensors[0], 1)[0]
            candidates = (map_averaging_to(tensor[0], row) for tensor in tensors)
            feature_map = next((candidate for candidate in candidates if candidate is not None), None)
            if feature_map is None:
                raise UserError(
                    f"The output '{self.output}' of {self.path} is not the average over places of a feature map.",
                    setting="output", value=self.output,
                    advice="Fit with one that is, `encoder.output`=NAME, or with the encoder 'visterms'.",
                )  # fmt: skip
            maps.append(feature_map.astype(np.float64))
        return maps

    def write_steps(self, before: GraphSteps, after: GraphSteps, pictures: str, *, floats: bool) -> str:
        """Add the steps from pictures of 0 to 255 to the network's input, and from its output to rows.

        `pictures` names a tensor (n, height, width, 3) of uint8 or, with `floats`, float32. Returns the name of the
        rows, (n, n_features).
        """
        preparation, x = self.preparation, pictures
        if self.dtype is np.uint8:
            x = before.add("Cast", x, to_type=np.uint8) if floats else x
        else:
            x = before.add("Mul", x if floats else before.add("Cast", x, to_type=np.float32), preparation.scale)
            x = before.add("Div", before.add("Sub", x, np.array(preparation.mean)), np.array(preparation.std))

        x = x if preparation.colours == "RGB" else before.columns(x, np.array([2, 1, 0]), axis=3)
        x = before.add("Cast", x, to_type=np.float16) if self.dtype is np.float16 else x
        x = x if self.channels_last else before.add("Transpose", x, perm=[0, 3, 1, 2])
        before.add("Identity", x, to=self._input)
        drawn = np.zeros((1, *preparation.size, 3), np.uint8)
        (out,) = run_session(self._session, self.path, [self.output], self.feed(drawn))
        rows, width = after.add("Cast", self.output, to_type=np.float32), out.shape[-1]

        if out.ndim == 3 and self.pooling in ("class", "both"):
            first = after.columns(rows, np.array(0))
            if self.pooling == "class":
                return first
            rest = _averaged(after, after.columns(rows, np.arange(1, out.shape[1])), [0, 2, 1], width)
            return after.add("Concat", first, rest, axis=1)
        if out.ndim == 3:
            return _averaged(after, rows, [0, 2, 1], width)
        if out.ndim == 4:
            is_last = self._are_last(out)
            return _averaged(after, rows, [0, 3, 1, 2] if is_last else None, width if is_last else out.shape[1])
        return rows

    def _are_last(self, maps: Numbers) -> bool:
        """Return whether the output maps have the shape (n, height, width, channels)."""
        if self._map_layout is not None:
            return self._map_layout == "channels_last"
        axes, size = maps.shape[1:], self.preparation.size
        label = f"The output '{self.output}' of {self.path}"
        return channels_last(axes, size, pictures_last=self.channels_last, label=label)


def _averaged(steps: GraphSteps, maps: str, turned: list[int] | None, width: int) -> str:
    """Average maps or tokens to (n, width); `turned` permutes their axes first so that channels are second."""
    maps = maps if turned is None else steps.add("Transpose", maps, perm=turned)
    return steps.add("Reshape", steps.add("GlobalAveragePool", maps), np.array([-1, width]))


def open_session(path: str, model: bytes | None = None, device: str = "cpu") -> ort.InferenceSession:
    """Open a network on one thread: the file itself, or `model`, a changed version of it.

    Raises StorageError if the file is missing or not an ONNX network; UserError if onnxruntime has no such device here.
    """
    providers = device_providers(device)
    if not Path(path).is_file():
        raise missing(path)
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4  # problems are raised as errors too
    if model is not None:  # its folder may have files of weights
        options.add_session_config_entry(WEIGHTS_FOLDER_KEY, os.path.dirname(os.path.abspath(path)))

    try:
        session = ort.InferenceSession(
            path if model is None else model, options, providers=providers, enable_fallback=len(providers) > 1
        )
        tensors = (*session.get_inputs(), *session.get_outputs())
        names = [(tensor.name, tensor.shape) for tensor in tensors], session.get_modelmeta().custom_metadata_map
        del names  # reading them raises if they are not UTF-8
    except OPEN_ERRORS as error:
        raise StorageError(f"{path} cannot be opened as an ONNX network: {_reason(error)}.") from error

    if device != "auto" and session.get_providers()[0] != providers[0]:  # onnxruntime only warns and uses the CPU
        raise UserError(
            f"device is '{device}', but onnxruntime could not start its {providers[0]} (are its libraries installed?).",
            setting="device", value=device, advice="Use 'auto' or 'cpu'.",
        )  # fmt: skip
    return session


def run_session(session: ort.InferenceSession, path: str, names: list[str], feed: dict[str, Numbers]) -> list[Numbers]:
    """Run a network, and return its outputs `names`. Raises StorageError, with its path, if it cannot be run."""
    try:
        return [np.asarray(output) for output in session.run(names, feed)]
    except OPEN_ERRORS as error:
        raise StorageError(f"{path} cannot be run: {_reason(error)}. Use another network.") from error


def _reason(error: BaseException) -> str:
    """Return onnxruntime's error message, shortened to one line."""
    text = " ".join(str(error).split())
    if size := re.search(r"requested buffer of size (\d+)", text):
        return f"it asks for {in_bytes(int(size[1]))} of memory at once"
    if isinstance(error, MemoryError) or "bad_alloc" in text:
        return "it asks for more memory than there is"
    return text.rstrip(".") if len(text) <= MAX_MESSAGE_LENGTH else f"{text[:MAX_MESSAGE_LENGTH]} ..."


def device_providers(device: str) -> list[str]:
    """Return onnxruntime's providers for a device, with the CPU for unsupported operations.

    "auto" is the first of `PROVIDERS` that this onnxruntime is built for, or "cpu". Raises UserError if onnxruntime is
    not built for the device.
    """
    available = [name for name, provider in PROVIDERS.items() if provider in ort.get_available_providers()]
    if device == "auto":
        device = available[0] if available else "cpu"
    name = device.partition(":")[0]
    if name != "cpu" and name not in available:
        raise UserError(
            f"device is {device!r}, and this onnxruntime is built for {', '.join([*available, 'cpu'])}.",
            setting="device", value=device,
            advice="Use one of these, or install onnxruntime-gpu, onnxruntime-openvino or onnxruntime-directml in "
            "place of onnxruntime.",
        )  # fmt: skip
    return [CPU] if name == "cpu" else [PROVIDERS[name], CPU]


def _image_input(
    path: str, session: ort.InferenceSession, layout: object
) -> tuple[str, Any, bool, bool, tuple[int | None, int | None]]:
    """Return the input's name, dtype, whether channels are last, whether it takes one image, and sides (None: any)."""
    inputs = session.get_inputs()
    input_texts = ", ".join(f"{tensor.name} {tensor.type} {tensor.shape}" for tensor in inputs)
    image = inputs[0]
    batch, *dims = [dim if isinstance(dim, int) and dim > 0 else None for dim in image.shape] or [None]
    if len(inputs) != 1 or image.type not in _INPUT_DTYPES or len(image.shape) != 4 or batch not in (None, 1):
        raise UserError(
            f"{path} takes {input_texts}; expected one input of images, uint8 or float, "
            "(images, height, width, 3) or (images, 3, height, width), for one image or any number of images."
        )
    dtype = _INPUT_DTYPES[image.type]

    if layout is not None:
        is_last = as_layout(layout)[0] == "channels_last"
    else:
        is_last = dims[2] == 3 or (dims[0] is None and dims[2] is None and dtype is np.uint8)

    *size, channels = dims if is_last else (*dims[1:], dims[0])
    if channels not in (3, None):
        layout_note = f" laid out with {layout}" if layout else ""
        raise UserError(f"{path} takes {input_texts}; expected images of 3 channels{layout_note}.")
    return image.name, dtype, is_last, batch == 1, (size[0], size[1])


def chosen_output(path: str, names: list[str], requested: str | None) -> str:
    """Return the requested output, or the only one, or one with a name of features."""
    if requested is not None and requested not in names:
        raise UnknownNameError(unknown(f"output of {path}", requested, names), setting="output", value=requested)
    feature_outputs = [name for name in FEATURE_NAMES if name in names]
    if requested is not None or len(names) == 1 or feature_outputs:
        return requested or (names if len(names) == 1 else feature_outputs)[0]
    advice = f"Choose the output with the features, for example `encoder.output`={names[-1]}."
    raise UserError(f"{path} has the outputs {', '.join(names)}.", setting="output", value=requested, advice=advice)


def _sides(path: str, requested: Any, fixed: tuple[int | None, int | None]) -> tuple[int, int] | None:
    """Return height and width, as requested or as the input fixes them; None if both leave them open."""
    if requested is None:
        height, width = fixed
        any_side = height or width
        return None if any_side is None else (height or any_side, width or any_side)
    size = as_size(requested)
    if any(side not in (None, chosen) for side, chosen in zip(fixed, size, strict=True)):
        takes = " × ".join("any" if side is None else str(side) for side in fixed)
        problem = f"size is {requested!r}, but {path} takes images of {takes}."
        raise UserError(problem, setting="size", value=requested, advice="Leave `encoder.size` out.")
    return size
