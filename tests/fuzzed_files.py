"""Damaged image files by number: small real files of every format, with bits flipped, ends cut off, headers that lie.

``python fuzzed_files.py FIRST END`` encodes the cases FIRST .. END - 1 and prints what became of each.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageDraw

from visterm.data.pillow import readable_formats

SEED = 20_261_121
MAX_FLIPS = 24
HEADER = 64
"""The first bytes, where most formats say what they are and how large."""
EXTREMES = (0, 1, 2, 0x7F, 0xFF, 0x7FFF, 0xFFFF, 0x10000, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)


class Case(NamedTuple):
    """One damaged file.

    Attributes
    ----------
    name : str
        The file that it was, and what was done to it.
    content : bytes
    """

    name: str
    content: bytes


def case(number: int) -> Case:
    """Make the case of this number: always the same for the same version of Pillow."""
    rng = np.random.default_rng([SEED, number])
    names = sorted(sound_files())
    name = names[number % len(names)]
    damage = DAMAGES[number // len(names) % len(DAMAGES)]
    return Case(f"{name}, {damage.__name__.strip('_')}", damage(sound_files()[name], rng))


@cache
def sound_files() -> dict[str, bytes]:
    """Save a small drawn picture in all formats, modes and compressions that this Pillow can write."""
    picture = Image.radial_gradient("L").resize((48, 32)).convert("RGB")
    pen = ImageDraw.Draw(picture)
    pen.ellipse((4, 4, 28, 28), fill=(200, 60, 20))
    pen.line((0, 31, 47, 0), fill=(20, 90, 220), width=3)
    clear = picture.convert("RGBA")
    clear.putalpha(Image.linear_gradient("L").resize((48, 32)))
    palette = picture.quantize(16)
    deep = Image.fromarray(np.asarray(picture.convert("L")).astype(np.uint16) * 257)
    exif = Image.Exif()
    exif[0x0112] = 6
    exif[0x010F] = "a camera"
    frames = {"save_all": True}
    wanted = {
        "jpeg": (picture, "JPEG", {"quality": 90, "exif": exif}),
        "jpeg progressive": (picture, "JPEG", {"progressive": True, "subsampling": 0}),
        "jpeg grey": (picture.convert("L"), "JPEG", {"optimize": True}),
        "jpeg cmyk": (picture.convert("CMYK"), "JPEG", {"restart_marker_rows": 1}),
        "mpo": (picture, "MPO", frames),
        "png": (picture, "PNG", {"exif": exif}),
        "png clear": (clear, "PNG", {"compress_level": 0}),
        "png palette": (palette, "PNG", {"transparency": 3, "bits": 4}),
        "png one bit": (picture.convert("1"), "PNG", {}),
        "png deep": (deep, "PNG", {}),
        "png frames": (picture, "PNG", frames),
        "gif": (palette, "GIF", {"transparency": 2}),
        "gif frames": (palette, "GIF", {**frames, "interlace": 1, "disposal": 2}),
        "webp": (picture, "WEBP", {"exif": exif}),
        "webp exact": (clear, "WEBP", {"lossless": True}),
        "webp frames": (picture, "WEBP", frames),
        "bmp": (picture, "BMP", {}),
        "bmp palette": (palette, "BMP", {}),
        "dib": (picture, "DIB", {}),
        "tiff": (picture, "TIFF", {"exif": exif}),
        "tiff lzw": (picture, "TIFF", {"compression": "tiff_lzw"}),
        "tiff deflate": (clear, "TIFF", {"compression": "tiff_adobe_deflate"}),
        "tiff packbits": (palette, "TIFF", {"compression": "packbits"}),
        "tiff jpeg": (picture, "TIFF", {"compression": "jpeg"}),
        "tiff fax": (picture.convert("1"), "TIFF", {"compression": "group4"}),
        "tiff fax 3": (picture.convert("1"), "TIFF", {"compression": "group3"}),
        "tiff zstd": (picture, "TIFF", {"compression": "zstd"}),
        "tiff lzma": (picture, "TIFF", {"compression": "lzma"}),
        "tiff deep": (deep, "TIFF", {"compression": "tiff_lzw"}),
        "tiff float": (picture.convert("F"), "TIFF", {}),
        "tiff cmyk": (picture.convert("CMYK"), "TIFF", {}),
        "tiff ycbcr": (picture.convert("YCbCr"), "TIFF", {}),
        "tiff big": (picture, "TIFF", {"big_tiff": True}),
        "tiff frames": (picture, "TIFF", frames),
        "ppm": (picture, "PPM", {}),
        "pgm": (picture.convert("L"), "PPM", {}),
        "pbm": (picture.convert("1"), "PPM", {}),
        "pgm deep": (deep, "PPM", {}),
        "pfm": (picture.convert("F"), "PPM", {}),
        "jpeg 2000": (picture, "JPEG2000", {"irreversible": True, "quality_layers": [20]}),
        "jpeg 2000 exact": (clear, "JPEG2000", {"num_resolutions": 3, "tile_size": (16, 16)}),
        "jpeg 2000 bare": (picture, "JPEG2000", {"no_jp2": True}),
        "avif": (picture, "AVIF", {"exif": exif, "speed": 10}),
        "avif clear": (clear, "AVIF", {"speed": 10, "quality": 100}),
        "avif frames": (picture, "AVIF", {**frames, "speed": 10}),
        "qoi": (picture, "QOI", {}),
        "qoi clear": (clear, "QOI", {}),
        "heif": (picture, "HEIF", {}),
    }  # fmt: skip
    files = {}
    for name, (image, kind, settings) in wanted.items():
        content = _saved(image, kind, settings)
        if content is not None:
            files[name] = content
    files["ppm of text"] = b"P3\n# a comment\n2 2 255\n" + b"255 0 0  0 255 0\n0 0 255  9 9 9\n"
    files["pbm of text"] = b"P1\n4 2\n1 0 1 0\n0 1 0 1\n"
    return files


def _saved(image: Image.Image, kind: str, settings: dict[str, object]) -> bytes | None:
    """Return the bytes of a file; None for what this Pillow was built without."""
    Image.init()
    readable_formats()
    file = BytesIO()
    try:
        # Copies, because Pillow leaves settings of the format on the image.
        more = {"append_images": [image.rotate(90), image.rotate(180)]} if settings.get("save_all") else {}
        image.copy().save(file, format=kind, **settings, **more)
    except (KeyError, OSError):
        return None
    return file.getvalue()


def _bits_flipped(content: bytes, rng: np.random.Generator) -> bytes:
    return _flipped(content, rng, len(content))


def _header_bits_flipped(content: bytes, rng: np.random.Generator) -> bytes:
    return _flipped(content, rng, min(HEADER, len(content)))


def _flipped(content: bytes, rng: np.random.Generator, end: int) -> bytes:
    changed = bytearray(content)
    for _ in range(rng.integers(1, MAX_FLIPS + 1)):
        changed[rng.integers(end)] ^= 1 << int(rng.integers(8))
    return bytes(changed)


def _truncated(content: bytes, rng: np.random.Generator) -> bytes:
    return content[: rng.integers(len(content))]


def _header_of_another(content: bytes, rng: np.random.Generator) -> bytes:
    others = sorted(sound_files())
    other = sound_files()[others[rng.integers(len(others))]]
    length = int(rng.integers(2, HEADER))
    return other[:length] + content[length:]


def _extreme_numbers(content: bytes, rng: np.random.Generator) -> bytes:
    """Put extreme numbers of one to four bytes where sizes and offsets stand, in the header or further down."""
    changed = bytearray(content)
    for _ in range(rng.integers(1, 4)):
        width = int(rng.choice([1, 2, 4]))
        value = EXTREMES[rng.integers(len(EXTREMES))] & ((1 << 8 * width) - 1)
        at = int(rng.integers(min(HEADER if rng.random() < 0.7 else len(content), len(content))))
        changed[at : at + width] = value.to_bytes(width, "big" if rng.random() < 0.5 else "little")
    return bytes(changed)


def _piece_repeated(content: bytes, rng: np.random.Generator) -> bytes:
    """Put a piece of the file in a second time, so that all behind it lies further down than the header says."""
    start, end = sorted(rng.integers(len(content) + 1, size=2).tolist())
    at = int(rng.integers(len(content) + 1))
    return content[:at] + content[start:end] + content[at:]


DAMAGES: tuple[Callable[[bytes, np.random.Generator], bytes], ...] = (
    _bits_flipped,
    _truncated,
    _header_bits_flipped,
    _extreme_numbers,
    _header_of_another,
    _piece_repeated,
)


def encode_cases(first: int, end: int) -> None:
    """Print "ready", then each case's number before it is read and, after it, what became of it in how many seconds."""
    from visterm.encoders.visterms import Visterms

    rng = np.random.default_rng(0)
    encoder = Visterms(colours=4, codebook=12, scales=(1.0,), max_side=64, sample_blocks=200, n_jobs=1)
    encoder.fit(list(rng.integers(0, 256, (6, 32, 48, 3), np.uint8)))
    sound_files()
    print("ready", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "case")
        for number in range(first, end):
            path.write_bytes(case(number).content)
            print(number, flush=True)
            start = time.process_time()
            encoded = encoder.encode([path])
            seconds = time.process_time() - start
            answer = {
                "rows": encoded.rows.shape[0],
                "finite": bool(np.isfinite(encoded.rows.data).all()) if len(encoded.kept) else True,
                "reasons": [item.reason for item in encoded.skipped],
                "seconds": seconds,
            }
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    encode_cases(int(sys.argv[1]), int(sys.argv[2]))
