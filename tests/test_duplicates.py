"""Pictures that look the same are found whatever their size and compression, and the best of them is to be kept."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import sys
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from command_line import visterm
from refusals import refused
from tiny_catalogue import save_catalogue
from visterm.cli import main
from visterm.core.remote import only_named_stores
from visterm.data.contents import exif_of
from visterm.library.duplicates import FLAT_HASH, find_duplicates, near_pairs, perceptual_hash
from visterm.library.records import read_records
from visterm.store.catalogue import Origin, StoredCatalogue


def picture(seed: int, side: int = 96) -> Image.Image:
    """Draw smooth blotches: neighbours in a photo are alike, too."""
    rough = np.random.default_rng(seed).integers(0, 256, (12, 12, 3), dtype=np.uint8)
    return Image.fromarray(rough).resize((side, side), Image.Resampling.BICUBIC)


def bits_apart(a: int, b: int) -> int:
    return ((a ^ b) & (2**64 - 1)).bit_count()


def stored(paths) -> StoredCatalogue:
    catalogue = StoredCatalogue(Origin("", "made"))
    records = read_records(paths, [path.name for path in paths], [[] for _ in paths])
    catalogue.add(records, np.ones((len(records), 2), np.float32))
    return catalogue


def names(groups):
    return [[group.keeper.name, *(copy.image.name for copy in group.copies)] for group in groups]


def test_scaled_and_recompressed_copies_have_nearly_the_same_hash_and_other_pictures_have_not():
    hashes = [perceptual_hash(np.asarray(picture(seed))) for seed in range(12)]
    for seed, before in enumerate(hashes):
        small = np.asarray(picture(seed).resize((48, 40)))
        assert bits_apart(before, perceptual_hash(small)) <= 6
    apart = [bits_apart(a, b) for a, b in itertools.combinations(hashes, 2)]
    assert min(apart) > 12


def test_lighter_copies_have_the_same_hash():
    grey = np.asarray(picture(3)) // 2
    assert perceptual_hash(grey) == perceptual_hash(grey + 40)


def test_pictures_without_contrast_are_like_no_other():
    black, nearly = np.zeros((40, 40, 3), np.uint8), np.full((40, 40, 3), 250, np.uint8)
    nearly[::2] += 1
    assert perceptual_hash(black) == perceptual_hash(nearly) == FLAT_HASH
    assert near_pairs(np.array([FLAT_HASH, FLAT_HASH]), 12) == []


def shade(kind: str, seed: int, grain: float = 3) -> Image.Image:
    """Draw a picture in which there is nothing but one shade, with the grain of a camera."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:1:240j, 0:1:320j]
    low, high = rng.uniform(30, 110), rng.uniform(150, 240)
    part = {
        "sky": y, "dusk": y**2, "wall": x, "slope": (x + y) / 2, "vignette": 1 - (x - 0.5) ** 2 - (y - 0.5) ** 2,
        "glow": 1 - np.hypot(x - 0.2, y - 0.3), "horizon": y > 0.6, "halves": x > 0.5,
    }  # fmt: skip
    if kind in part:
        grey = low + (high - low) * part[kind]
    else:
        grey = np.full_like(x, {"dark": 4, "white": 250, "fog": 180}[kind]) + 8 * (kind == "fog") * y
    pixels = grey[..., None] * rng.uniform(0.9, 1, 3) + rng.normal(0, grain, (*grey.shape, 3))
    return Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))


SHADES = ("sky", "dusk", "wall", "slope", "vignette", "glow", "horizon", "halves", "dark", "white", "fog")


@pytest.mark.parametrize("grain", [0, 3])
@pytest.mark.parametrize("kind", SHADES)
def test_pictures_of_nothing_but_a_shade_are_copies_by_their_bytes_alone(kind, grain, tmp_path):
    for seed in range(3):
        shade(kind, seed, grain).save(tmp_path / f"{seed}.jpg", quality=85 - 20 * seed)
    (tmp_path / "3.jpg").write_bytes((tmp_path / "0.jpg").read_bytes())
    catalogue = stored(sorted(tmp_path.iterdir()))
    assert names(find_duplicates(catalogue, 12).groups) == [["0.jpg", "3.jpg"]]


def test_files_with_the_same_pixels_are_copies_where_there_is_no_more_to_compare(tmp_path):
    for seed in range(2):
        shade("sky", seed).save(tmp_path / f"{seed}.png")
    shade("sky", 0).save(tmp_path / "tagged.png", compress_level=1)
    catalogue = stored(sorted(tmp_path.iterdir()))
    (group,) = find_duplicates(catalogue).groups
    assert {group.keeper.name, *(copy.image.name for copy in group.copies)} == {"0.png", "tagged.png"}


@pytest.mark.parametrize("contrast", [1, 0.3, 0.1])
def test_copies_of_a_faint_photo_are_found_as_those_of_others(contrast):
    faint = Image.fromarray((np.asarray(picture(3)) * contrast).astype(np.uint8) + 8)
    assert bits_apart(*(perceptual_hash(np.asarray(one)) for one in (faint, faint.resize((64, 64))))) <= 6


@pytest.mark.parametrize("distance", [0, 1, 4, 12])
def test_near_pairs_are_those_that_comparing_all_with_all_finds(distance):
    rng = np.random.default_rng(0)
    centres = rng.integers(-(2**63), 2**63 - 1, 40)
    hashes = []
    for centre in centres.tolist():
        hashes.append(centre)
        for n_bits in (1, 4, 5, 12):
            flipped = sum(1 << int(bit) for bit in rng.choice(64, n_bits, replace=False))
            hashes.append(centre ^ flipped)
    array = np.array([h & (2**64 - 1) for h in hashes], np.uint64).view(np.int64)
    slow = [
        ((a, b), apart)
        for a, b in itertools.combinations(range(len(array)), 2)
        if (apart := bits_apart(int(array[a]), int(array[b]))) <= distance
    ]
    assert near_pairs(array, distance) == slow
    assert distance == 0 or slow


def test_the_largest_of_a_group_is_kept_and_no_file_is_touched(tmp_path):
    picture(1).save(tmp_path / "large.png")
    picture(1).resize((48, 48)).save(tmp_path / "small.jpg", quality=70)
    picture(1).resize((48, 48)).save(tmp_path / "small copy.jpg", quality=70)
    picture(2).save(tmp_path / "other.png")
    paths = sorted(tmp_path.iterdir())
    before = [hashlib.sha256(path.read_bytes()).hexdigest() for path in paths]
    groups, _, skipped = find_duplicates(stored(paths))
    assert names(groups) == [["large.png", "small.jpg", "small copy.jpg"]]
    assert [copy.same_bytes for copy in groups[0].copies] == [False, False]
    assert groups[0].as_dict()["keep"]["width"] == 96
    assert skipped == []
    assert [hashlib.sha256(path.read_bytes()).hexdigest() for path in paths] == before


def test_pictures_of_another_shape_are_no_copies_however_alike_they_look(tmp_path):
    picture(1).save(tmp_path / "square.png")
    picture(1).resize((96, 64)).save(tmp_path / "wide.png")
    picture(1).resize((48, 49)).save(tmp_path / "nearly square.png")
    groups, _, _ = find_duplicates(stored(sorted(tmp_path.iterdir())))
    assert names(groups) == [["square.png", "nearly square.png"]]


def test_files_of_the_same_bytes_are_copies_even_where_nothing_is_to_be_seen(tmp_path):
    for name in ("a.png", "b.png", "c.png"):
        Image.new("RGB", (30, 30), "white").save(tmp_path / name)
    Image.new("RGB", (30, 30), "black").save(tmp_path / "black.png")
    groups, _, _ = find_duplicates(stored(sorted(tmp_path.iterdir())))
    assert names(groups) == [["a.png", "b.png", "c.png"]]
    assert all(copy.same_bytes and copy.distance == 0 for copy in groups[0].copies)


def test_copies_are_near_the_one_to_keep_and_not_only_near_each_other(tmp_path):
    for seed in range(3):
        picture(seed).save(tmp_path / f"{seed}.png")
    catalogue = stored(sorted(tmp_path.iterdir()))
    ids = [image.id for image in catalogue.images.all()]
    catalogue.images.set_phashes(zip(ids, [0b1111, 0b111111, 0b11111111], strict=True))  # 2 bits from one to the next
    groups, _, _ = find_duplicates(catalogue, 2)
    assert names(groups) == [["0.png", "1.png"]]


def test_hashes_are_kept_and_pictures_that_cannot_be_read_are_listed(tmp_path):
    for name in ("a.png", "b.png"):
        picture(5).save(tmp_path / name)
    catalogue = stored(sorted(tmp_path.iterdir()))
    find_duplicates(catalogue)
    (tmp_path / "a.png").unlink()
    groups, _, skipped = find_duplicates(catalogue)
    assert (len(groups), skipped) == (1, [])
    catalogue.images.set_phashes([(catalogue.images.all()[0].id, None)])
    groups, _, skipped = find_duplicates(catalogue)
    assert len(skipped) == 1
    assert "a.png" in skipped[0].image


def test_a_distance_that_would_call_all_pictures_the_same_is_refused():
    with refused("distance", value=30):
        find_duplicates(StoredCatalogue(Origin("", "made")), 30)


def test_the_command_shows_groups_with_the_keeper_first(tmp_path, capsys, monkeypatch):
    photos = tmp_path / "photos"
    photos.mkdir()
    picture(1).save(photos / "large.png")
    picture(1).resize((48, 48)).save(photos / "small.png")
    save_catalogue(stored(sorted(photos.iterdir())), tmp_path / "catalogue")
    monkeypatch.setattr(sys, "argv", ["visterm", "duplicates", str(tmp_path / "catalogue"), "--json"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    printed = capsys.readouterr()
    group = json.loads(printed.out)
    assert (group["keep"]["image"], group["copies"][0]["image"]) == ("large.png", "small.png")
    assert "nothing was deleted" in printed.err
    monkeypatch.setattr(sys, "argv", ["visterm", "duplicates", str(tmp_path / "catalogue")])
    with pytest.raises(SystemExit):
        main()
    assert capsys.readouterr().out.startswith("keep  large.png  96 x 96\n      small.png  48 x 48")
    monkeypatch.setattr(sys, "argv", ["visterm", "duplicates", str(tmp_path / "unlike")])
    picture(2).save(photos / "other.png")
    save_catalogue(stored([photos / "large.png", photos / "other.png"]), tmp_path / "unlike")
    with pytest.raises(SystemExit):
        main()
    printed = capsys.readouterr()
    assert (printed.out, "No photos look the same." in printed.err) == ("", True)


def test_a_photo_in_a_store_that_nobody_named_is_skipped_and_the_others_are_compared(tmp_path):
    paths = [tmp_path / name for name in ("a.png", "b.png", "c.png")]
    for path, side in zip(paths, (96, 90, 96), strict=True):
        picture(1, side).save(path)
    catalogue = stored(paths)
    with catalogue.database.transaction() as connection:
        connection.execute("UPDATE images SET path = 'http://host/b.png' WHERE name = 'b.png'")
    with only_named_stores([]):
        groups, _, skipped = find_duplicates(catalogue)
    assert [(item.image, "not opened" in item.reason) for item in skipped] == [("b.png", True)]
    assert names(groups) == [["a.png", "c.png"]]


def shot(path, seed, taken=None, **how):
    """Save a picture as a camera does, with the date."""
    exif = Image.Exif()
    if taken is not None:
        exif[0x132] = f"2024:05:01 12:00:{taken:02}"
    path.parent.mkdir(parents=True, exist_ok=True)
    near = np.asarray(picture(seed), np.int16) + np.random.default_rng(len(path.name)).integers(-3, 4, (96, 96, 3))
    Image.fromarray(np.clip(near, 0, 255).astype(np.uint8)).save(path, exif=exif, **how)


def dated(folder):
    """A catalogue of all pictures in a folder, named by their paths inside it, with their dates."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    names = [path.relative_to(folder).as_posix() for path in paths]
    records = [replace(r, taken=exif_of(r.path).taken) for r in read_records(paths, names, [[] for _ in paths])]
    catalogue = StoredCatalogue(Origin("", "made"))
    catalogue.add(records, np.ones((len(records), 2), np.float32))
    return catalogue


@pytest.mark.parametrize(
    ("kept", "copy"),
    [
        ("photos/1.png", "Backup/1.png"), ("z/1.png", "1 - Kopie.png"), ("b.png", "a copy.png"), ("1.png", "1 (2).png"),
        ("b.png", "album/b.png"), ("copyright.png", "album/copyright.png"),
    ],
)  # fmt: skip
def test_of_equal_files_the_backup_and_the_longer_path_are_the_copies(kept, copy, tmp_path):
    for name in (kept, copy):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        picture(1).save(tmp_path / name)
    assert names(find_duplicates(dated(tmp_path)).groups) == [[kept, copy]]


def test_of_equal_files_with_names_alike_the_oldest_is_kept(tmp_path):
    for name, seconds in (("a.png", 2_000), ("b.png", 1_000)):
        picture(1).save(tmp_path / name)
        os.utime(tmp_path / name, (seconds, seconds))
    assert names(find_duplicates(dated(tmp_path)).groups) == [["b.png", "a.png"]]


def test_shots_of_a_series_and_screenshots_are_listed_apart_and_their_copies_are_copies(tmp_path):
    shot(tmp_path / "IMG_1.jpg", 1, taken=1)
    shot(tmp_path / "IMG_02.jpg", 1, taken=1)
    shot(tmp_path / "IMG_003.jpg", 1, taken=3)
    (tmp_path / "Backup").mkdir()
    (tmp_path / "Backup" / "IMG_003.jpg").write_bytes((tmp_path / "IMG_003.jpg").read_bytes())
    shot(tmp_path / "Screenshot 1.png", 2)
    shot(tmp_path / "Screenshot 20.png", 2)
    shot(tmp_path / "no date.jpg", 3)
    shot(tmp_path / "no date either.jpg", 3, taken=5, quality=60)
    found = find_duplicates(dated(tmp_path))
    assert names(found.groups) == [["IMG_003.jpg", "Backup/IMG_003.jpg"], ["no date.jpg", "no date either.jpg"]]
    assert [(group.kind, [image.name for image in group.images]) for group in found.alike] == [
        ("series", ["IMG_02.jpg", "IMG_1.jpg", "IMG_003.jpg"]),
        ("screenshots", ["Screenshot 1.png", "Screenshot 20.png"]),
    ]


def test_the_command_lists_series_last_and_does_not_call_them_dispensable(tmp_path):
    for number in (1, 2):
        shot(tmp_path / "photos" / f"IMG_{number}.jpg", 1, taken=number)
    save_catalogue(dated(tmp_path / "photos"), tmp_path / "catalogue")
    code, out, err = visterm("duplicates catalogue", tmp_path)
    assert (code, out) == (0, "series       IMG_1.jpg  96 x 96\n             IMG_2.jpg  96 x 96\n")
    assert "No photos look the same. 1 group of shots of a series or screenshots" in err
    _, out, _ = visterm("duplicates catalogue --json", tmp_path)
    assert (json.loads(out)["kind"], len(json.loads(out)["images"])) == ("series", 2)
