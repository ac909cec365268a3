"""Every kind of image file comes out as upright RGB, and every kind of bad file as a reason."""

from __future__ import annotations

import os
import struct
import threading
import warnings
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from refusals import refused
from visterm.core.errors import DataError, ImageError, UserError
from visterm.core.types import Skipped
from visterm.data.images import MAX_SCANS, Decoded, decode_images, find_images, read_image, read_image_bytes

RED, GREEN, BLUE, WHITE = (255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 255)
ORIENTATION = 0x0112


@pytest.fixture
def quadrants() -> Image.Image:
    """A picture 48 wide and 32 high: red, green above blue, white; no turn or flip of it is the picture itself."""
    pixels = np.zeros((32, 48, 3), np.uint8)
    pixels[:16, :24], pixels[:16, 24:], pixels[16:, :24], pixels[16:, 24:] = RED, GREEN, BLUE, WHITE
    return Image.fromarray(pixels)


def corners(pixels: np.ndarray) -> list[tuple[int, ...]]:
    """The middles of the four quadrants, row by row, each channel rounded to 0 or 255."""
    h, w, _ = pixels.shape
    return [tuple(int(c > 127) * 255 for c in pixels[y, x]) for y in (h // 4, 3 * h // 4) for x in (w // 4, 3 * w // 4)]


@pytest.mark.parametrize("suffix", ["jpg", "png", "gif", "webp", "bmp", "tif", "ppm", "jp2", "avif", "qoi"])
def test_every_format_comes_out_as_rgb(tmp_path, quadrants, suffix):
    path = tmp_path / f"a.{suffix}"
    quadrants.save(path)
    pixels = read_image(path)
    assert pixels.dtype == np.uint8
    assert pixels.shape == (32, 48, 3)
    assert pixels.flags.c_contiguous
    assert pixels.flags.writeable
    assert corners(pixels) == [RED, GREEN, BLUE, WHITE]


@pytest.mark.parametrize(
    ("mode", "suffix"),
    [("CMYK", "jpg"), ("CMYK", "tif"), ("P", "png"), ("P", "gif"), ("RGBA", "png"), ("RGBA", "webp"), ("YCbCr", "tif")],
)
def test_colour_modes_keep_their_colours(tmp_path, quadrants, mode, suffix):
    path = tmp_path / f"a.{suffix}"
    quadrants.convert(mode).save(path)
    assert corners(read_image(path)) == [RED, GREEN, BLUE, WHITE]


@pytest.mark.parametrize("mode", ["1", "L", "LA"])
def test_grey_modes_become_equal_channels(tmp_path, mode):
    path = tmp_path / "a.png"
    ramp = Image.fromarray(np.tile(np.array([0, 255], np.uint8), (2, 1)))
    ramp.convert(mode).save(path)
    assert read_image(path).tolist() == [[[0, 0, 0], [255, 255, 255]]] * 2


@pytest.mark.parametrize("dtype", ["<u2", ">u2"])
@pytest.mark.parametrize("suffix", ["png", "tif"])
def test_sixteen_bits_are_scaled_and_not_clipped(tmp_path, suffix, dtype):
    path = tmp_path / f"a.{suffix}"
    Image.fromarray(np.array([[0, 257, 32896, 65535]], dtype)).save(path)
    assert read_image(path)[0, :, 0].tolist() == [0, 1, 128, 255]


def test_a_sixteen_bit_portable_greymap_is_scaled(tmp_path):
    path = tmp_path / "a.pgm"
    path.write_bytes(b"P5 2 1 65535\n" + struct.pack(">2H", 32896, 65535))
    assert read_image(path)[0, :, 0].tolist() == [128, 255]


def test_twelve_bit_tiffs_are_scaled_by_twelve_bits(tmp_path):
    path = tmp_path / "a.tif"
    entries = [(256, 4, 2), (257, 4, 1), (258, 3, 12), (259, 3, 1), (262, 3, 1), (273, 4, 8), (277, 3, 1)]
    entries += [(278, 4, 1), (279, 4, 3)]
    directory = struct.pack("<H", len(entries)) + b"".join(
        struct.pack("<HHII", tag, kind, 1, value) for tag, kind, value in entries
    )
    samples = bytes([0xFF, 0xF8, 0x00])  # 4095 and 2048, most significant bits first
    path.write_bytes(b"II*\0" + struct.pack("<I", 12) + samples + b"\0" + directory + bytes(4))
    assert read_image(path)[0, :, 0].tolist() == [255, 128]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0.0, 0.5, 1.0], [0, 128, 255]),
        ([0.0, 100.0, 200.0], [0, 100, 200]),
        ([-5.0, 500.0, 1000.0], [0, 128, 255]),
        ([np.nan, np.inf, 1.0], [0, 0, 255]),
    ],
)
def test_floating_point_images_are_scaled_by_their_range(tmp_path, values, expected):
    path = tmp_path / "a.tif"
    Image.fromarray(np.array([values], np.float32)).save(path)
    assert read_image(path)[0, :, 0].tolist() == expected


def test_whole_numbers_beyond_sixteen_bits_are_scaled_by_the_largest(tmp_path):
    path = tmp_path / "a.tif"
    Image.fromarray(np.array([[-7, 500_000, 1_000_000]], np.int32)).save(path)
    assert read_image(path)[0, :, 0].tolist() == [0, 128, 255]


@pytest.mark.parametrize(
    ("pixel", "expected"), [((200, 0, 0, 0), WHITE), ((0, 0, 0, 128), (127, 127, 127)), ((9, 8, 7, 255), (9, 8, 7))]
)
def test_transparent_parts_lie_on_white(tmp_path, pixel, expected):
    path = tmp_path / "a.png"
    Image.new("RGBA", (2, 2), pixel).save(path)
    assert tuple(read_image(path)[0, 0].tolist()) == expected


def test_grey_with_alpha_lies_on_white(tmp_path):
    path = tmp_path / "a.png"
    Image.new("LA", (2, 2), (40, 0)).save(path)
    assert tuple(read_image(path)[0, 0].tolist()) == WHITE


@pytest.mark.parametrize("transparency", [1, b"\xff\x00"])
@pytest.mark.parametrize("suffix", ["png", "gif"])
def test_transparent_palette_entries_lie_on_white(tmp_path, transparency, suffix):
    if suffix == "gif" and isinstance(transparency, bytes):
        transparency = 1  # GIF knows one transparent entry only
    path = tmp_path / f"a.{suffix}"
    image = Image.new("P", (2, 1), 0)
    image.putpalette([*RED, *BLUE])
    image.putpixel((1, 0), 1)
    image.save(path, transparency=transparency)
    assert read_image(path)[0].tolist() == [list(RED), list(WHITE)]


def test_a_transparent_colour_of_an_rgb_png_lies_on_white(tmp_path):
    path = tmp_path / "a.png"
    Image.new("RGB", (1, 1), (1, 2, 3)).save(path, transparency=(1, 2, 3))
    assert tuple(read_image(path)[0, 0].tolist()) == WHITE


@pytest.mark.parametrize("suffix", ["gif", "webp", "png", "tif"])
def test_the_first_frame_of_an_animation_is_read(tmp_path, suffix):
    path = tmp_path / f"a.{suffix}"
    first, second = Image.new("RGB", (8, 8), RED), Image.new("RGB", (8, 8), BLUE)
    first.save(path, save_all=True, append_images=[second])
    assert corners(read_image(path)) == [RED] * 4


@pytest.mark.parametrize("max_side", [None, 24])
@pytest.mark.parametrize("suffix", ["jpg", "png", "webp", "tif"])
@pytest.mark.parametrize(
    ("orientation", "stored"),
    [  # how the camera lays the upright picture down, by the EXIF standard's table of first row and first column
        (1, lambda p: p),
        (2, lambda p: p[:, ::-1]),
        (3, lambda p: p[::-1, ::-1]),
        (4, lambda p: p[::-1]),
        (5, lambda p: p.transpose(1, 0, 2)),
        (6, lambda p: np.rot90(p)),
        (7, lambda p: p[::-1, ::-1].transpose(1, 0, 2)),
        (8, lambda p: np.rot90(p, -1)),
    ],
)
def test_rotated_images_come_out_upright(tmp_path, quadrants, orientation, stored, suffix, max_side):
    path = tmp_path / f"a.{suffix}"
    exif = Image.Exif()
    exif[ORIENTATION] = orientation
    Image.fromarray(np.ascontiguousarray(stored(np.asarray(quadrants)))).save(path, exif=exif)
    pixels = read_image(path, max_side=max_side)
    assert pixels.shape == ((32, 48, 3) if max_side is None else (16, 24, 3))
    assert corners(pixels) == [RED, GREEN, BLUE, WHITE]


@pytest.mark.parametrize("orientation", [0, 9, 65535])
def test_an_orientation_that_does_not_exist_is_ignored(tmp_path, quadrants, orientation):
    path = tmp_path / "a.jpg"
    exif = Image.Exif()
    exif[ORIENTATION] = orientation
    quadrants.save(path, exif=exif)
    assert corners(read_image(path)) == [RED, GREEN, BLUE, WHITE]


@pytest.mark.parametrize(
    "exif", [b"Exif\0\0", b"Exif\0\0II*\0\xff\xff\xff\xff", b"Exif\0\0MM\0*\0\0\0\x08\xff\xff\x01"]
)
def test_broken_exif_leaves_a_good_image_readable_without_a_warning(tmp_path, quadrants, exif):
    path = tmp_path / "a.jpg"
    quadrants.save(path, exif=b"Exif\0\0" + exif)
    assert corners(read_image(path)) == [RED, GREEN, BLUE, WHITE]


def malformed_mpo(path: Path, image: Image.Image) -> None:
    """Write a JPEG that says it has further pictures and has none, which Pillow warns about."""
    index = b"MPF\0II*\0\x08\0\0\0" + struct.pack("<H", 1) + struct.pack("<HHII", 0xB001, 4, 1, 2) + bytes(4)
    image.save(path, extra=b"\xff\xe2" + struct.pack(">H", len(index) + 2) + index)


def test_a_warning_of_pillow_does_not_surface_and_the_filters_stay_as_they_were(tmp_path, quadrants):
    path = tmp_path / "a.jpg"
    malformed_mpo(path, quadrants)
    with pytest.warns(UserWarning, match="malformed MPO"):
        Image.open(path).close()
    before = list(warnings.filters)
    assert len(list(decode_images([path] * 40, n_jobs=4))) == 40
    assert warnings.filters == before


def test_other_warnings_are_heard_while_images_are_decoded(quadrants):
    images = decode_images([np.asarray(quadrants)] * 20, n_jobs=2)
    next(images)
    with pytest.warns(UserWarning, match="mine"):
        warnings.warn("mine", UserWarning, stacklevel=1)
    assert len(list(images)) == 19


def test_the_content_decides_the_format(tmp_path, quadrants):
    path = tmp_path / "a.jpg"
    quadrants.save(path, format="PNG")
    assert read_image(path).shape == (32, 48, 3)


@pytest.mark.parametrize(
    ("size", "max_side", "expected"),
    [
        ((400, 200), 100, (50, 100)),
        ((200, 400), 100, (100, 50)),
        ((400, 300), 401, (300, 400)),
        ((3, 2), 100, (2, 3)),
        ((1000, 3), 100, (1, 100)),
        ((999, 333), 250, (83, 250)),
    ],
)
@pytest.mark.parametrize("suffix", ["jpg", "png"])
def test_the_longest_side_is_reduced_and_never_enlarged(tmp_path, size, max_side, expected, suffix):
    path = tmp_path / f"a.{suffix}"
    Image.new("RGB", size, BLUE).save(path)
    assert read_image(path, max_side=max_side).shape == (*expected, 3)


@pytest.mark.parametrize("suffix", ["jpg", "png"])
def test_reducing_averages_instead_of_picking_pixels(tmp_path, suffix):
    path = tmp_path / f"a.{suffix}"
    board = (np.indices((256, 256)).sum(0) % 2 * 255).astype(np.uint8)
    Image.fromarray(np.stack([board] * 3, 2)).save(path, **({"quality": 95} if suffix == "jpg" else {}))
    pixels = read_image(path, max_side=32).astype(int)
    assert np.abs(pixels[2:-2, 2:-2] - 127).max() <= 3


def png_header(width: int, height: int) -> bytes:
    """A PNG that says how large it is, with hardly any data."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    start = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + start + chunk(b"IDAT", zlib.compress(bytes(99))) + chunk(b"IEND", b"")


@pytest.mark.parametrize("how", ["a file", "bytes"])
def test_a_jpeg_whose_last_scan_is_said_over_and_over_is_refused(tmp_path, quadrants, how):
    path = tmp_path / "a.jpg"
    quadrants.save(path, progressive=True)
    content = path.read_bytes()
    assert corners(read_image(path)) == [RED, GREEN, BLUE, WHITE]
    scan = content[content.rindex(b"\xff\xda") : -2]
    path.write_bytes(content[:-2] + MAX_SCANS * scan + content[-2:])
    with pytest.raises(ImageError, match=r"too slow to decode: \d+ scans, more than the 100 allowed"):
        read_image(path) if how == "a file" else read_image_bytes(path.read_bytes())


@pytest.mark.parametrize("side", [10_000, 60_000])
@pytest.mark.parametrize("max_side", [None, 100])
def test_decompression_bombs_are_refused(tmp_path, side, max_side):
    path = tmp_path / "bomb.png"
    path.write_bytes(png_header(side, side))
    with pytest.raises(ImageError) as caught:
        read_image(path, max_side=max_side)
    assert "decompression bomb" in caught.value.reason


def test_the_limit_on_pixels_is_pillows_own(tmp_path, monkeypatch):
    path = tmp_path / "a.png"
    Image.new("RGB", (20, 20)).save(path)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 399)
    with pytest.raises(ImageError, match="20 × 20 pixels, more than the 399 allowed"):
        read_image(path)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 400)
    assert read_image(path).shape == (20, 20, 3)


@pytest.mark.parametrize("suffix", ["jpg", "png", "gif", "webp", "bmp", "tif", "jp2", "avif"])
@pytest.mark.parametrize("share", [0.3, 0.7])
def test_truncated_files_are_refused(tmp_path, suffix, share):
    path = tmp_path / f"a.{suffix}"
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
    Image.fromarray(noise).save(path)
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(ImageError) as caught:
        read_image(path)
    assert caught.value.path == str(path)
    assert 5 < len(caught.value.reason) <= 160
    assert str(path) not in caught.value.reason
    assert caught.value.reason.partition(":")[0] in ("truncated", "damaged", "not supported", "not an image")


@pytest.mark.parametrize("options", [{}, {"restart_marker_rows": 1}])
def test_a_jpeg_without_its_end_marker_is_read_but_never_without_some_of_its_pixels(tmp_path, options):
    path = tmp_path / "a.jpg"
    noise = np.random.default_rng(0).integers(0, 256, (64, 96, 3), np.uint8)
    Image.fromarray(noise).save(path, **options)
    content, whole = path.read_bytes(), read_image(path)
    for n_missing in (1, 2):
        path.write_bytes(content[:-n_missing])
        np.testing.assert_array_equal(read_image(path), whole)
    restarts = [i for i in range(content.rindex(b"\xff\xda"), len(content) - 2) if content[i : i + 2] == b"\xff\xd1"]
    assert bool(restarts) == bool(options)
    for end in [len(content) - 9, len(content) - 400, *restarts, *(i + 2 for i in restarts)]:
        path.write_bytes(content[:end])
        with pytest.raises(ImageError, match="truncated"):
            read_image(path)


def test_a_progressive_jpeg_that_may_lack_a_scan_is_refused(tmp_path):
    path = tmp_path / "a.jpg"
    Image.fromarray(np.zeros((64, 64, 3), np.uint8)).save(path, progressive=True)
    path.write_bytes(path.read_bytes()[:-2])
    with pytest.raises(ImageError, match="truncated"):
        read_image(path)


def test_the_category_of_a_truncated_jpeg_is_one_word_whatever_is_missing(tmp_path):
    path = tmp_path / "a.jpg"
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)).save(path)
    path.write_bytes(path.read_bytes()[:2000])
    with pytest.raises(ImageError, match=r"truncated: image file is truncated \(\d+ bytes not processed\)\.$"):
        read_image(path)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda path: path.write_bytes(b""), "empty: 0 bytes"),
        (lambda path: path.write_text("hello"), "not an image: in no format that visterm reads"),
        (lambda path: path.write_bytes(b"\xff\xd8\xff"), "not an image: "),
        (lambda path: path.write_text("%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n"), "not an image"),
        (lambda path: path.mkdir(), "a folder: not an image"),
        (lambda path: None, "no such file"),
        (lambda path: path.symlink_to(path), "cannot be opened: "),
        (lambda path: path.symlink_to("nowhere"), "no such file"),
        (os.mkfifo, "not a regular file"),
    ],
    ids=["empty", "text", "three bytes", "postscript", "folder", "missing", "loop", "dangling link", "pipe"],
)
def test_what_is_no_image_is_refused_with_a_reason(tmp_path, make, reason):
    path = tmp_path / "a.jpg"
    make(path)
    with pytest.raises(ImageError) as caught:
        read_image(path)
    assert caught.value.reason.startswith(reason)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_a_file_without_permission_is_refused(tmp_path, quadrants):
    path = tmp_path / "a.png"
    quadrants.save(path)
    path.chmod(0)
    with pytest.raises(ImageError, match="no permission"):
        read_image(path)


def test_too_little_memory_is_a_reason_too(tmp_path, quadrants, monkeypatch):
    def fail(*_: object, **__: object) -> None:
        raise MemoryError

    path = tmp_path / "a.png"
    quadrants.save(path)
    monkeypatch.setattr(Image, "open", fail)
    with pytest.raises(ImageError, match="too little memory"):
        read_image(path)


@pytest.mark.parametrize("suffix", ["jpg", "png", "gif", "webp", "bmp", "tif", "jp2", "avif", "qoi", "ppm"])
@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_flipped_bits_give_an_image_or_a_reason(tmp_path, suffix, data):
    path = tmp_path / f"a.{suffix}"
    Image.new("RGB", (24, 16), GREEN).save(path)
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 6))):
        content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(content)
    try:
        pixels = read_image(path, max_side=64)
    except ImageError:
        return
    assert pixels.ndim == 3
    assert pixels.shape[2] == 3
    assert max(pixels.shape) <= 64


def test_arrays_pass_through_checked_and_contiguous():
    pixels = np.arange(24, dtype=np.uint8).reshape(2, 4, 3)
    assert read_image(pixels) is pixels
    turned = read_image(pixels[::-1])
    assert turned.flags.c_contiguous
    assert (turned == pixels[::-1]).all()
    assert read_image(np.zeros((40, 20, 3), np.uint8), max_side=10).shape == (10, 5, 3)


@pytest.mark.parametrize("shape", [(4, 4), (4, 4, 4), (1, 4, 4, 3), (0, 4, 3)])
def test_arrays_of_another_shape_are_an_error(shape):
    with pytest.raises(DataError, match=r"expected uint8 and \(height, width, 3\)"):
        read_image(np.zeros(shape, np.uint8))


def test_other_things_are_an_error(quadrants):
    with pytest.raises(DataError, match="dtype float64"):
        read_image(np.zeros((4, 4, 3)))
    with pytest.raises(DataError, match="not bytes"):
        read_image(quadrants.tobytes())
    with refused("max_side", value=0):
        read_image(np.zeros((4, 4, 3), np.uint8), max_side=0)


@pytest.mark.parametrize("n_jobs", [1, 2, 7])
def test_many_images_come_in_order_and_bad_ones_are_listed(tmp_path, n_jobs):
    images: list[Path | np.ndarray] = []
    for i in range(50):
        path = tmp_path / f"{i}.png"
        Image.new("RGB", (i + 1, 2)).save(path)
        images.append(path)
    images[7] = tmp_path / "missing.png"
    images[9] = np.zeros((1, 2, 3), np.uint8)
    results = list(decode_images(images, n_jobs=n_jobs))
    assert results[7] == Skipped(str(tmp_path / "missing.png"), "no such file")
    decoded = [result for result in results if isinstance(result, Decoded)]
    assert [result.index for result in decoded] == [i for i in range(50) if i != 7]
    assert [result.pixels.shape[1] for result in decoded] == [2 if i == 9 else i + 1 for i in range(50) if i != 7]


def test_only_a_bounded_number_of_images_is_in_flight():
    asked = 0

    def source():
        nonlocal asked
        for _ in range(1000):
            asked += 1
            yield np.zeros((1, 1, 3), np.uint8)

    images = decode_images(source(), n_jobs=2)
    for taken in range(1, 11):
        next(images)
        assert asked <= taken + 6
    images.close()


def test_closing_early_ends_the_threads():
    before = threading.active_count()
    images = decode_images([np.zeros((1, 1, 3), np.uint8)] * 100, n_jobs=3)
    next(images)
    assert threading.active_count() > before
    images.close()
    assert threading.active_count() == before


def test_an_array_that_is_no_image_stops_the_reading_with_an_error():
    with pytest.raises(DataError, match="shape"):
        list(decode_images([np.zeros((2, 2), np.uint8)], n_jobs=2))


def test_a_wrong_number_of_threads_is_an_error_at_once():
    with pytest.raises(UserError, match="n_jobs is 0"):
        decode_images([], n_jobs=0)


def touch(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")


def test_folders_are_searched_through_sorted_and_without_what_is_hidden(tmp_path):
    touch(tmp_path, "b.JPG", "a.png", "sub/c.webp", "sub/deep/d.tiff", "notes.txt", ".hidden.jpg", ".cache/e.jpg")
    found = [path.relative_to(tmp_path).as_posix() for path in find_images(tmp_path)]
    assert found == ["a.png", "b.JPG", "sub/c.webp", "sub/deep/d.tiff"]


def test_a_hidden_folder_given_by_name_is_searched(tmp_path):
    touch(tmp_path, ".photos/a.jpg")
    assert find_images(tmp_path / ".photos") == [tmp_path / ".photos" / "a.jpg"]


def test_a_file_given_by_name_is_kept_whatever_its_suffix_and_only_once(tmp_path):
    touch(tmp_path, "a.jpg", "scan.dat")
    found = find_images([tmp_path / "scan.dat", str(tmp_path), tmp_path / "a.jpg"])
    assert found == [tmp_path / "scan.dat", tmp_path / "a.jpg"]


def test_a_path_that_does_not_exist_is_an_error(tmp_path):
    with pytest.raises(DataError, match="no file or folder"):
        find_images(tmp_path / "nowhere")


@pytest.mark.shared
def test_real_photos_are_read_as_pillow_reads_them(shared):
    paths = find_images(shared / "data" / "corel5k" / "images")[:20]
    for item, path in zip(decode_images(paths), paths, strict=True):
        assert isinstance(item, Decoded)
        with Image.open(path) as image:
            assert (item.pixels == np.asarray(image.convert("RGB"))).all()
