"""Addresses in object stores stand where folders of this machine may: listed, read, written in one step."""

from __future__ import annotations

import pickle
import subprocess
import sys
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from object_stores import forget_stores
from visterm.core.errors import DataError, ImageError, MissingExtraError, StorageError, UserError
from visterm.core.persist import file_hash, folder_kind
from visterm.core.remote import RemotePath, absolute, as_path, is_remote
from visterm.core.types import Skipped
from visterm.data import images
from visterm.data.image_folders import find_images, images_in
from visterm.data.images import decode_images, read_image

pytest_plugins = ["encoding_fixtures"]


def picture(colour) -> bytes:
    file = BytesIO()
    Image.new("RGB", (8, 6), colour).save(file, "PNG")
    return file.getvalue()


def test_paths_of_this_machine_stay_what_they_are_and_addresses_keep_their_slashes():
    assert as_path("photos/a") == Path("photos/a")
    assert as_path(Path("/x")) == Path("/x")
    assert as_path("file:///tmp/x") == Path("/tmp/x")
    assert not is_remote("file:///tmp/x")
    assert not is_remote("C:/photos")
    assert not is_remote(Path("s3:/x"))
    assert not is_remote(7)
    path = as_path("S3://Bucket/a/")
    assert isinstance(path, RemotePath)
    assert str(path) == "s3://Bucket/a" == f"{path.absolute()}"
    assert str(path / "b c.jpg") == "s3://Bucket/a/b c.jpg"
    assert as_path(path) is path
    assert (path / "b.JPG").suffix == ".JPG"
    assert (path / "b").name == "b"
    assert (path / "b").parent == path
    assert (path / "b").with_name("c") == path / "c"
    assert absolute(path) is path
    assert absolute("x") == Path.cwd() / "x"


def test_names_below_an_address_are_given_as_those_below_a_folder_are():
    folder = as_path("s3://bucket/photos")
    assert (folder / "a/b.jpg").relative_to(folder).as_posix() == "a/b.jpg"
    assert (folder / "a").is_relative_to("s3://bucket/photos/")
    assert folder.is_relative_to(folder)
    assert not as_path("s3://bucket/photos2/a").is_relative_to(folder)
    with pytest.raises(ValueError, match="not below"):
        as_path("s3://bucket/photos2/a").relative_to(folder)
    assert pickle.loads(pickle.dumps(folder)) == folder
    assert len({folder, as_path("s3://bucket/photos")}) == 1


def test_objects_are_written_whole_listed_read_and_removed(store):
    assert not store.is_dir()
    assert store.files() == []
    assert store.children() == []
    (store / "a/b 1#.txt").write_bytes(b"old")
    (store / "a/b 1#.txt").write_bytes(b"new words")
    (store / "a/c/d.txt").write_bytes(b"x")
    (store / "z.txt").write_bytes(b"")
    assert store.is_dir()
    assert (store / "a").is_dir()
    assert not (store / "a").is_file()
    assert (store / "z.txt").is_file()
    assert store.files() == ["a/b 1#.txt", "a/c/d.txt", "z.txt"]
    assert (store / "a").files() == ["b 1#.txt", "c/d.txt"]
    assert store.children() == ["a", "z.txt"]
    assert (store / "a").children() == ["b 1#.txt", "c"]
    assert (store / "a/b 1#.txt").read_text() == "new words"
    with (store / "a/b 1#.txt").open("rb") as file:
        file.seek(4)
        assert file.read() == b"words"
    (store / "z.txt").unlink()
    (store / "z.txt").unlink(missing_ok=True)
    assert not (store / "z.txt").exists()
    with pytest.raises(FileNotFoundError):
        (store / "z.txt").read_bytes()


def test_an_object_is_created_once_and_its_stamp_tells_another_content(store):
    lock = store / "lock"
    assert lock.stamp() is None
    assert lock.create(b"mine")
    assert not lock.create(b"yours")
    assert lock.read_bytes() == b"mine"
    before = lock.stamp()
    assert before is not None
    assert lock.stamp() == before
    lock.write_bytes(b"next")
    assert lock.stamp() != before


def test_a_file_hash_and_the_kind_of_a_folder_are_read_from_a_store(store):
    (store / "x/manifest.json").write_bytes(b'{"kind": "features folder"}')
    assert folder_kind(store / "x") == "features folder"
    assert folder_kind(str(store / "y")) is None
    # sha256 of "abc", FIPS 180-2 appendix B.1
    (store / "abc").write_bytes(b"abc")
    assert file_hash(store / "abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


def test_images_below_an_address_are_found_as_those_of_a_folder_are(store, tmp_path):
    names = ["b.JPG", "a/c.png", "a/.hidden.png", ".thumbs/d.png", "notes.txt", "a/e.tar.gz"]
    for name in names:
        (store / name).write_bytes(b"1")
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"1")
    found = images_in(str(store))
    assert [path.relative_to(store).as_posix() for path in found] == ["a/c.png", "b.JPG"]
    assert [path.relative_to(tmp_path).as_posix() for path in images_in(tmp_path)] == ["a/c.png", "b.JPG"]
    assert find_images([str(store / "notes.txt"), tmp_path / "b.JPG"]) == [store / "notes.txt", tmp_path / "b.JPG"]


def test_a_place_without_images_says_what_is_there(store):
    with pytest.raises(DataError, match=rf"no folder 'none' in {store}"):
        images_in(store / "none")
    (store / "notes.txt").write_bytes(b"1")
    with pytest.raises(DataError, match=rf"no images in the folder {store}.*Its 1 file \(such as 'notes.txt'\)"):
        images_in(store)
    with pytest.raises(DataError, match="is a file"):
        images_in(store / "notes.txt")
    with pytest.raises(DataError, match=rf"no file or folder {store}/none"):
        find_images(store / "none")


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_images_of_a_store_are_decoded_in_order_among_those_of_this_machine(store, tmp_path, n_jobs, monkeypatch):
    monkeypatch.setattr(images, "MAX_FETCHED_AHEAD", 3)
    colours = [(10 * i, 0, 0) for i in range(9)]
    places = []
    for i, colour in enumerate(colours):
        place = tmp_path / f"{i}.png" if i % 4 == 1 else store / f"{i}.png"
        place.write_bytes(picture(colour))
        places.append(place)
    (store / "bad.png").write_bytes(b"no picture")
    (store / "empty.png").write_bytes(b"")
    array = np.zeros((2, 2, 3), np.uint8)
    found = list(decode_images([*places, store / "gone.png", str(store / "bad.png"), store / "empty.png", array],
                               n_jobs=n_jobs))  # fmt: skip
    assert [tuple(item.pixels[0, 0].tolist()) for item in found[:9]] == colours
    assert [item.index for item in found[:9]] == list(range(9))
    assert found[-1].index == 12
    assert found[9] == Skipped(f"{store}/gone.png", "no such file")
    assert found[10].image == f"{store}/bad.png"
    assert found[10].reason.startswith("not an image")
    assert found[11] == Skipped(f"{store}/empty.png", "empty: 0 bytes")
    assert np.array_equal(read_image(places[0]), found[0].pixels)
    with pytest.raises(ImageError, match="no such file"):
        read_image(store / "gone.png")


def test_a_store_that_cannot_be_reached_stops_the_job_and_skips_no_image(server, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    forget_stores()
    try:
        with pytest.raises(StorageError, match=r"s3://bucket/a.png cannot be read: EndpointConnectionError.*AWS_END"):
            list(decode_images(["s3://bucket/a.png"], n_jobs=2))
    finally:
        forget_stores()


def test_a_bucket_that_is_not_there_is_reported_when_written_to(server):
    with pytest.raises(StorageError, match=r"s3://no-such-bucket/x cannot be written.*bucket"):
        as_path("s3://no-such-bucket/x").write_bytes(b"1")
    assert as_path("s3://no-such-bucket/x").files() == []
    assert not as_path("s3://no-such-bucket/x").exists()


def test_an_address_of_no_store_and_a_package_that_is_missing_say_what_to_do(monkeypatch):
    with pytest.raises(UserError, match=r"address zz9://a/b is not understood.*s3://bucket/photos"):
        as_path("zz9://a/b").exists()
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with pytest.raises(MissingExtraError, match=r"s3://bucket/a needs a package.* pip install 'visterm\[s3\]'"):
        as_path("s3://bucket/a").read_bytes()


def test_paths_of_this_machine_never_load_fsspec(tmp_path):
    (tmp_path / "a.png").write_bytes(picture("red"))
    code = (
        "import sys\nfrom visterm.data.images import decode_images\nfrom visterm.data.image_folders import images_in\n"
        "from visterm.features.folder import is_features\n"
        f"assert not is_features({str(tmp_path)!r})\n"
        f"assert len(list(decode_images(images_in('file://{tmp_path}')))) == 1\n"
        "assert 'fsspec' not in sys.modules, 'fsspec'"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=600)
