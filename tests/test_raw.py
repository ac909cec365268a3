"""RAW files are read through the preview inside them, HEIC where its reader is installed, and the rest is counted."""

from __future__ import annotations

import shutil
import struct
from importlib.util import find_spec
from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from visterm.core.types import Skipped
from visterm.data import file_kinds, raw
from visterm.data.image_folders import count_not_read, find_images
from visterm.data.images import Decoded, decode_images, image_size, read_image

COLOURS = [(250, 10, 10), (10, 250, 10), (10, 10, 250), (250, 250, 250)]


def drawn(height=64, width=96):
    """Four colours in the corners."""
    pixels = np.zeros((height, width, 3), np.uint8)
    for (y, x), colour in zip([(0, 0), (0, 1), (1, 0), (1, 1)], COLOURS, strict=True):
        pixels[y * height // 2 : (y + 1) * height // 2, x * width // 2 : (x + 1) * width // 2] = colour
    return pixels


def dng(preview, orientation=1):
    """The bytes of a small DNG: a JPEG preview in front, and 32 × 32 values of a sensor (DNG 1.4, TIFF 6.0)."""
    made = BytesIO()
    Image.fromarray(preview).save(made, "JPEG", quality=95)
    jpeg = made.getvalue()
    sensor = np.full((32, 32), 700, "<u2").tobytes()
    text, short, long, byte, rational = 2, 3, 4, 1, 5

    def directory(entries, at):
        """The bytes of an IFD that begins at a place, its longer values behind it."""
        head, behind = struct.pack("<H", len(entries)), b""
        end = at + 2 + 12 * len(entries) + 4
        for tag, kind, count, value in sorted(entries):
            if len(value) > 4:
                place = end + len(behind)
                behind += value + b"\0" * (len(value) % 2)
                value = struct.pack("<I", place)
            head += struct.pack("<HHI", tag, kind, count) + value.ljust(4, b"\0")
        return head + bytes(4) + behind

    def number(*values):
        return struct.pack(f"<{len(values)}I", *values)

    def words(*values):
        return struct.pack(f"<{len(values)}H", *values)

    def front(below, picture):
        height, width, _ = preview.shape
        return directory(
            [
                (254, long, 1, number(1)), (256, long, 1, number(width)), (257, long, 1, number(height)),
                (258, short, 3, words(8, 8, 8)), (259, short, 1, words(7)), (262, short, 1, words(6)),
                (271, text, 6, b"Drawn\0"), (272, text, 6, b"Drawn\0"), (273, long, 1, number(picture)),
                (274, short, 1, words(orientation)), (277, short, 1, words(3)), (278, long, 1, number(height)),
                (279, long, 1, number(len(jpeg))), (330, long, 1, number(below)),
                (50706, byte, 4, bytes([1, 4, 0, 0])), (50707, byte, 4, bytes([1, 1, 0, 0])),
                (50708, text, 6, b"Drawn\0"), (50721, 10, 9, struct.pack("<18i", *[1, 1, 0, 1, 0, 1, 0, 1] * 2, 0, 1)),
                (50728, rational, 3, number(1, 1, 1, 1, 1, 1)), (50778, short, 1, words(21)),
            ],
            8,
        )  # fmt: skip

    def sensor_part(at, values):
        return directory(
            [
                (254, long, 1, number(0)), (256, long, 1, number(32)), (257, long, 1, number(32)),
                (258, short, 1, words(16)), (259, short, 1, words(1)), (262, short, 1, words(32803)),
                (273, long, 1, number(values)), (277, short, 1, words(1)), (278, long, 1, number(32)),
                (279, long, 1, number(len(sensor))), (33421, short, 2, words(2, 2)),
                (33422, byte, 4, bytes([0, 1, 1, 2])), (50717, long, 1, number(4095)),
            ],
            at,
        )  # fmt: skip

    below = 8 + len(front(0, 0))
    values = below + len(sensor_part(below, 0))
    picture = values + len(sensor)
    return b"II*\0" + number(8) + front(below, picture) + sensor_part(below, values) + sensor + jpeg


READERS = ["rawpy", "exiftool"]


@pytest.fixture
def reader(request, monkeypatch):
    """Let only one of the readers be there."""
    there = find_spec("rawpy") if request.param == "rawpy" else shutil.which("exiftool")
    if there is None:
        pytest.skip(f"{request.param} is not installed")
    if request.param == "exiftool":
        without(monkeypatch, "rawpy")
    else:
        monkeypatch.setenv("PATH", "/nowhere")
    return request.param


def without(monkeypatch, *packages):
    for module in (raw, file_kinds):
        found = module.find_spec
        monkeypatch.setattr(module, "find_spec", lambda name, found=found: None if name in packages else found(name))


def corners(pixels):
    height, width, _ = pixels.shape
    return [pixels[height * y // 4, width * x // 4].astype(int) for y in (1, 3) for x in (1, 3)]


@pytest.mark.parametrize("reader", READERS, indirect=True)
@pytest.mark.parametrize(("orientation", "turns"), [(1, 0), (3, 2), (6, 1), (8, 3)])
def test_a_raw_file_is_read_upright_through_its_preview(tmp_path, reader, orientation, turns):
    path = tmp_path / "a.DNG"
    path.write_bytes(dng(np.ascontiguousarray(np.rot90(drawn(), turns)), orientation))
    found = read_image(path)
    assert found.shape == drawn().shape
    assert np.abs(np.array(corners(found)) - COLOURS).max() < 12
    assert image_size(path) == (96, 64)
    assert read_image(path, max_side=48).shape == (32, 48, 3)


@pytest.mark.parametrize("reader", READERS, indirect=True)
def test_what_is_no_raw_file_or_has_no_preview_is_skipped_with_the_reason(tmp_path, reader):
    (tmp_path / "a.cr2").write_bytes(b"no camera made this")
    (tmp_path / "b.dng").write_bytes(dng(drawn())[:200])
    (tmp_path / "c.dng").write_bytes(dng(drawn()))
    found = list(decode_images(find_images(tmp_path)))
    assert [type(one) for one in found] == [Skipped, Skipped, Decoded]
    assert all("RAW" in one.reason for one in found[:2])


def test_what_is_not_read_is_counted_by_kind_with_what_to_install(tmp_path, monkeypatch):
    without(monkeypatch, "rawpy", "pi_heif", "pillow_heif")
    monkeypatch.setenv("PATH", "/nowhere")
    names = [
        "a.jpg",
        "a.CR2",
        "b.cr2",
        "c.nef",
        "a.heic",
        "clip.MP4",
        "notes.txt",
        "a.jpg.xmp",
        ".hidden.cr2",
        "LICENCE",
    ]
    for name in names:
        (tmp_path / name).write_bytes(b"x")
    found = count_not_read([tmp_path])
    assert found.line() == (
        "Not read: 1 HEIC file (.heic; read with: pip install 'visterm[heif]'), 3 RAW files (.cr2, .nef; read with: "
        "pip install 'visterm[raw]', or the program exiftool), 1 video (.mp4), 2 others (without ending, .txt)."
    )
    assert found.as_dict() == {"heic": 1, "raw": 3, "video": 1, "other": 2}
    assert [path.name for path in find_images(tmp_path)] == ["a.jpg"]


def test_what_can_be_read_is_listed_and_not_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(file_kinds, "find_spec", lambda name: object())
    for name in ("a.jpg", "a.CR2", "a.heic"):
        (tmp_path / name).write_bytes(b"x")
    kinds = tuple(kind for kind in file_kinds.KINDS if kind.name != "video")
    monkeypatch.setattr(file_kinds, "KINDS", tuple(kind._replace(is_readable=lambda: True) for kind in kinds))
    assert count_not_read([tmp_path]).line() == ""
    assert [path.name for path in find_images(tmp_path)] == ["a.CR2", "a.heic", "a.jpg"]
