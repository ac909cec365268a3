"""RAW files are read through the preview inside them, HEIC where its reader is installed, and the rest is counted."""

from __future__ import annotations

import base64
import json
import os
import shutil
import struct
from importlib.util import find_spec
from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from command_line import visterm
from visterm.core.errors import ImageError
from visterm.core.types import Skipped
from visterm.data import image_folders, pillow
from visterm.data.contents import exif_of
from visterm.data.image_folders import count_not_read, find_images, match_names
from visterm.data.images import Decoded, decode_images, image_size, read_image
from visterm.web.decoding_process import JPEG, answer

COLOURS = [(250, 10, 10), (10, 250, 10), (10, 10, 250), (250, 250, 250)]


def drawn(height=64, width=96):
    """Four colours in the corners."""
    pixels = np.zeros((height, width, 3), np.uint8)
    for (y, x), colour in zip([(0, 0), (0, 1), (1, 0), (1, 1)], COLOURS, strict=True):
        pixels[y * height // 2 : (y + 1) * height // 2, x * width // 2 : (x + 1) * width // 2] = colour
    return pixels


def dng(preview, orientation=1, **how):
    """The bytes of a small DNG: a JPEG preview in front, and 32 × 32 values of a sensor (DNG 1.4, TIFF 6.0)."""
    made = BytesIO()
    Image.fromarray(preview).save(made, "JPEG", quality=95, **how)
    jpeg = made.getvalue()
    if how:  # cameras put EXIF first, without JFIF
        jpeg = jpeg[:2] + jpeg[4 + int.from_bytes(jpeg[4:6], "big") :]
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


HEIC = (
    "AAAAHGZ0eXBoZWljAAAAAG1pZjFoZWljbWlhZgAAAaFtZXRhAAAAAAAAACFoZGxyAAAAAAAAAABwaWN0AAAAAAAAAAAAAAAAAAAAADRpbG9jAA"
    "AAAERAAAIAAQAAAAABxQABAAAAAAAAAOcAAgAAAAACrAABAAAAAAAAACQAAAA4aWluZgAAAAAAAgAAABVpbmZlAgAAAAABAABodmMxAAAAABVp"
    "bmZlAgAAAQACAABFeGlmAAAAAA5waXRtAAAAAAABAAAA4GlwcnAAAADAaXBjbwAAAHhodmNDAQNwAAAAkAAAAAAAHvAA/P34+AAADwNgAAEAGE"
    "ABDAH//wNwAAADAJAAAAMAAAMAHroCQGEAAQArQgEBA3AAAAMAkAAAAwAAAwAeoCCBhZbqSSmubgIaDAgAAAMAyAAAAwAIQGIAAQAHRAHBcrAi"
    "QAAAABNjb2xybmNseAABAA0ABoAAAAAUaXNwZQAAAAAAAABAAAAAYAAAABBwaXhpAAAAAAMICAgAAAAJaXJvdAMAAAAYaXBtYQAAAAAAAAABAA"
    "EFgQIDBIUAAAAaaXJlZgAAAAAAAAAOY2RzYwACAAEAAQAAARNtZGF0AAAA4ygBrwngIzaiPvH12T//9iAn//nfJ0px/tKSPv6KkW/9pya/Qwf/"
    "yyIgPX0jv+Qa0lCCQQLLAtfzjbSUF1+TVo7a8hPpwZ9oy2TfWvDta6T/d7+9Z3J3wSsLKeXO4gkPXcSA0fMae0gN8uVnOsNiUR5y1Nq2EkaXYw"
    "wxTzJSsjmj//hYQz9vnG/b479hIyKk7y5XDdqznYbI9GVoF3Cq+e7rhdHum7lTZ3ZJve6FdIb7WX2v0AvwJMbZx9rUXCN/AWWqP1Z3AKfyai8A"
    "6rAzO4NjD3GCRe3jC3NIwbg+pClyf/YwAAAABkV4aWYAAE1NACoAAAAIAAEBEgADAAAAAQAGAAAAAAAA"
)
"""`drawn()` turned to the left, with the EXIF orientation 6, as pillow-heif 1.8 writes it."""

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
    for module in (pillow, image_folders):
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
def test_a_preview_says_when_the_photo_was_taken_and_which_way_up_it_is_before_the_raw_file_does(tmp_path, reader):
    exif = Image.Exif()
    exif[274], exif[306] = 8, "2024:05:31 10:20:30"
    path = tmp_path / "a.dng"
    path.write_bytes(dng(np.ascontiguousarray(np.rot90(drawn(), 3)), 6, exif=exif))
    assert exif_of(path).taken == "2024-05-31T10:20:30"
    assert np.abs(np.array(corners(read_image(path))) - COLOURS).max() < 12
    path.write_bytes(dng(drawn()))
    assert exif_of(path).taken is None


@pytest.mark.parametrize("reader", READERS, indirect=True)
def test_what_is_no_raw_file_or_has_no_preview_is_skipped_with_the_reason(tmp_path, reader):
    (tmp_path / "a.cr2").write_bytes(b"no camera made this")
    (tmp_path / "b.dng").write_bytes(dng(drawn())[:200])
    (tmp_path / "c.dng").write_bytes(dng(drawn()))
    found = list(decode_images(find_images(tmp_path)))
    assert [type(one) for one in found] == [Skipped, Skipped, Decoded]
    assert all("RAW" in one.reason for one in found[:2])


def test_heic_photos_are_read_upright_where_a_reader_is_installed(tmp_path):
    if not image_folders.KINDS[1].is_readable():
        pytest.skip("neither pi-heif nor pillow-heif is installed")
    path = tmp_path / "a.heic"
    path.write_bytes(base64.b64decode(HEIC))
    found = read_image(path)
    assert (found.shape, image_size(path)) == (drawn().shape, (96, 64))
    assert np.abs(np.array(corners(found)) - COLOURS).max() < 12
    path.write_bytes(path.read_bytes()[:300])
    with pytest.raises(ImageError):
        read_image(path)


def test_a_name_without_ending_means_the_jpeg_beside_a_raw_file(tmp_path):
    paths = [tmp_path / name for name in ("1.dng", "1.jpg", "2.nef")]
    assert [match.path.name for match in match_names(tmp_path, paths, ["1", "2"])] == ["1.jpg", "2.nef"]


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
    assert found.text == (
        "1 HEIC file (.heic; read with: pip install pi-heif), 3 RAW files (.cr2, .nef; "
        "read with: pip install 'visterm[raw]', or the program exiftool), 1 video (.mp4; index and annotate read "
        "them), 2 others (without ending, .txt)"
    )
    assert found.counts == {"heic": 1, "raw": 3, "video": 1, "other": 2}
    assert [path.name for path in find_images(tmp_path)] == ["a.jpg"]


def test_what_can_be_read_is_listed_and_not_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(image_folders, "find_spec", lambda name: object())
    for name in ("a.jpg", "a.CR2", "a.heic"):
        (tmp_path / name).write_bytes(b"x")
    kinds = tuple(kind for kind in image_folders.KINDS if kind.name != "video")
    monkeypatch.setattr(image_folders, "KINDS", tuple(kind._replace(packages=(), programs=()) for kind in kinds))
    assert count_not_read([tmp_path]).text == ""
    assert [path.name for path in find_images(tmp_path)] == ["a.CR2", "a.heic", "a.jpg"]


@pytest.fixture(scope="module")
def camera(tmp_path_factory):
    """Photos of a camera that writes RAW files only, a list of them, and a run of the same tags."""
    folder = tmp_path_factory.mktemp("camera")
    (folder / "photos").mkdir()
    rng, rows = np.random.default_rng(3), ["file_name,tags"]
    for number in range(24):
        pixels = rng.integers(0, 60, (48, 64, 3), np.uint8)
        pixels[..., number % 2 * 2] += 180
        (folder / "photos" / f"{number:02}.dng").write_bytes(dng(pixels))
        rows.append(f"{number:02}.dng,{'blue' if number % 2 else 'red'}")
    (folder / "photos" / "list.txt").write_text("of photos")
    (folder / "tags.csv").write_text("\n".join(rows))
    return folder


def test_raw_photos_are_learned_from_indexed_and_shown(camera):
    if not image_folders.KINDS[2].is_readable():
        pytest.skip("neither rawpy nor exiftool is installed")
    fit = "fit photos --tags tags.csv -o run --encoder visterms --model ridge"
    for line in (fit, "index run photos -o catalogue"):
        code, _, err = visterm(line, camera)
        assert code == 0, err
        assert "Not read as photos: 1 other (.txt)." in err
    code, out, _ = visterm("search catalogue blue -k 12 --json", camera)
    assert code == 0
    found = [json.loads(line)["image"] for line in out.splitlines()]
    assert sum(int(name[:2]) % 2 for name in found) > 9
    code, out, _ = visterm("info catalogue", camera)
    assert "not read: 1 other (.txt)" in out
    assert answer(JPEG, True, 32, os.fsencode(camera / "photos" / "00.dng"))[:3] == (JPEG, 24, 32)
