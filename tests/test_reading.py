"""Images are decoded while others are encoded, in bounded memory, no larger than needed, and HEIC where it can be."""

from __future__ import annotations

import subprocess
import sys
import threading
import tracemalloc

import numpy as np
import pytest
from PIL import Image, ImageDraw, JpegImagePlugin

from visterm.core.types import Skipped
from visterm.data import images, pillow
from visterm.data.images import Decoded, decode_images, read_image
from visterm.encoders.base import Encoder

PATIENCE = 600
"""Seconds after which a test that waits for other threads fails."""

HEIC_HEAD = b"\x00\x00\x00\x1cftypheic\x00\x00\x00\x00mif1heicmiaf" + bytes(100)


class MeanColour(Encoder):
    """The simplest encoder: three numbers an image."""

    def __init__(self, *, batch_size=4, n_jobs=2, max_side=None, when_encoding=lambda: None):
        self.batch_size = batch_size
        self.n_jobs = n_jobs
        self.max_side = max_side
        self.when_encoding = when_encoding

    def _encode_batch(self, batch):
        self.when_encoding()
        return np.array([pixels.mean(axis=(0, 1)) for pixels in batch], np.float32)


@pytest.fixture
def decoded(monkeypatch):
    """Counts the images that were decoded; lets a thread wait for a number of them."""

    class Count:
        n = 0
        changed = threading.Condition()

        def reaches(self, n):
            with self.changed:
                return self.changed.wait_for(lambda: self.n >= n, timeout=PATIENCE)

    count, read = Count(), images.read_image

    def counting(image, **settings):
        pixels = read(image, **settings)
        with count.changed:
            count.n += 1
            count.changed.notify_all()
        return pixels

    monkeypatch.setattr(images, "read_image", counting)
    return count


def plain(n, side=4):
    return [np.full((side, side, 3), i % 256, np.uint8) for i in range(n)]


@pytest.mark.parametrize("batch_size", [4, 30])
def test_the_whole_next_batch_is_decoded_while_one_is_encoded(decoded, batch_size):
    encoded = 0

    def wait_for_the_next_batch():
        nonlocal encoded
        encoded += batch_size
        assert decoded.reaches(min(encoded + batch_size, 90))

    encoder = MeanColour(batch_size=batch_size, when_encoding=wait_for_the_next_batch)
    rows = encoder.transform(plain(90))
    assert rows[:, 0].tolist() == list(range(90))


def test_no_more_than_the_next_batch_is_decoded_ahead(decoded):
    taken = 0

    def look():
        nonlocal taken
        taken += 30
        decoded.reaches(min(taken + 30, 300))
        assert decoded.n <= taken + 30

    MeanColour(batch_size=30, when_encoding=look).transform(plain(300))


def test_one_thread_decodes_each_image_when_it_is_requested(decoded):
    before = threading.active_count()
    results = decode_images(plain(20), n_jobs=1, ahead=10)
    for taken in range(1, 6):
        assert isinstance(next(results), Decoded)
        assert decoded.n == taken
    assert threading.active_count() == before


def test_memory_does_not_grow_with_the_number_of_images(tmp_path):
    path = tmp_path / "a.png"
    Image.effect_noise((200, 200), 50).convert("RGB").save(path)
    encoder = MeanColour(batch_size=8)
    peaks = []
    for n in (40, 400):
        encoder.encode([path] * 40)
        tracemalloc.start()
        encoder.encode([path] * n)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    in_work = 2 * encoder.batch_size + 6 * encoder.n_jobs  # decoding one takes a few copies of it
    assert max(peaks) < in_work * 200 * 200 * 3


def test_the_rows_are_the_same_however_the_reading_is_shared_out(tmp_path):
    rng = np.random.default_rng(0)
    files = [tmp_path / f"{i}.jpg" for i in range(23)]
    for file in files:
        Image.fromarray(rng.integers(0, 256, (20, 30, 3), np.uint8)).save(file)
    files[5].write_bytes(b"no image")
    expected = MeanColour(n_jobs=1).encode(files)
    assert [item.image for item in expected.skipped] == [str(files[5])]
    for n_jobs, batch_size in [(2, 4), (3, 1), (5, 50)]:
        found = MeanColour(n_jobs=n_jobs, batch_size=batch_size).encode(files)
        np.testing.assert_array_equal(found.rows, expected.rows)
        np.testing.assert_array_equal(found.kept, expected.kept)
        assert found.skipped == expected.skipped


def drawn(size):
    """A picture of soft and hard edges, as photos have them."""
    width, height = size
    picture = Image.linear_gradient("L").resize(size).convert("RGB")
    pen = ImageDraw.Draw(picture)
    pen.ellipse((width // 8, height // 8, width // 2, height // 2), fill=(220, 60, 30))
    pen.rectangle((width // 2, height // 3, width - width // 8, height - height // 6), fill=(20, 90, 200))
    for x in range(0, width, width // 16):
        pen.line((x, 0, width - x, height), fill=(240, 240, 90), width=max(1, width // 150))
    return picture


@pytest.fixture
def drafted(monkeypatch):
    """The sizes that JPEG files were decoded at."""
    sizes = []
    load = JpegImagePlugin.JpegImageFile.load

    def loading(self):
        result = load(self)
        sizes.append(self.size)
        return result

    monkeypatch.setattr(JpegImagePlugin.JpegImageFile, "load", loading)
    return sizes


@pytest.mark.parametrize(
    ("size", "max_side", "decoded_at"),
    [
        ((1600, 1200), 200, (200, 150)),
        ((1600, 1200), 256, (400, 300)),
        ((1200, 1600), 500, (600, 800)),
        ((1600, 1200), 1000, (1600, 1200)),
        ((1600, 1200), None, (1600, 1200)),
    ],
)
def test_a_jpeg_is_decoded_no_larger_than_the_next_half_above_what_is_needed(
    tmp_path, drafted, size, max_side, decoded_at
):
    path = tmp_path / "a.jpg"
    drawn(size).save(path, quality=95)
    read_image(path, max_side=max_side)
    assert drafted[0] == decoded_at


def test_an_encoder_says_how_large_it_needs_its_images(tmp_path, drafted):
    path = tmp_path / "a.jpg"
    drawn((1600, 1200)).save(path)
    MeanColour(max_side=256).transform([path])
    assert drafted[0] == (400, 300)


@pytest.mark.parametrize("max_side", [150, 256, 399, 401, 700])
@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK"])
def test_a_draft_is_near_to_the_whole_picture_made_smaller(tmp_path, max_side, mode):
    path = tmp_path / "a.jpg"
    drawn((1600, 1200)).convert(mode).save(path, quality=95)
    with Image.open(path) as whole:
        pixels = whole.convert("RGB")
    expected = np.asarray(pixels.resize((max_side, round(max_side * 3 / 4)), Image.Resampling.BILINEAR), int)
    difference = np.abs(read_image(path, max_side=max_side).astype(int) - expected)
    assert difference.mean() < 2
    assert np.quantile(difference, 0.99) < 25


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        (HEIC_HEAD, True),
        (b"\x00\x00\x00\x18ftypmif1\x00\x00\x00\x00mif1heic" + bytes(9), True),
        (b"\x00\x00\x00\x18ftypmif1\x00\x00\x00\x00mif1avif" + bytes(9), False),
        (b"\x00\x00\x00\x14ftypisom\x00\x00\x00\x00mp42heic", False),
        (b"ftypheic", False),
        (b"", False),
    ],
    ids=["heic", "still of heic", "avif", "video, beyond the box", "no length", "nothing"],
)
def test_heic_is_known_by_its_brands(head, expected):
    assert pillow.is_heic(head) is expected


@pytest.mark.parametrize("name", ["a.heic", "a.jpg"])
def test_a_heic_photo_is_listed_with_what_to_install_where_its_reader_is_not(tmp_path, monkeypatch, name):
    monkeypatch.setattr(pillow, "register_heif", lambda: None)
    monkeypatch.delitem(Image.OPEN, "HEIF", raising=False)
    path = tmp_path / name
    path.write_bytes(HEIC_HEAD)
    assert list(decode_images([path])) == [Skipped(str(path), "HEIC without its reader: pip install pi-heif")]


def test_the_reader_of_heic_registers_itself_at_the_first_image_and_not_before(tmp_path):
    (tmp_path / "pi_heif.py").write_text("def register_heif_opener(**settings): print('registered', settings)\n")
    program = (
        "from visterm.data.images import read_image\n"
        "import numpy as np, PIL.Image\n"
        "print('imported')\n"
        "PIL.Image.new('RGB', (2, 2)).save('a.png')\n"
        "read_image('a.png'); read_image('a.png')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True,
        env={"PYTHONPATH": str(tmp_path), "PATH": ""},
    )  # fmt: skip
    assert done.stdout.splitlines() == ["imported", "registered {'thumbnails': False}"]
