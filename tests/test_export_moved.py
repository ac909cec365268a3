"""Tags are taken back from where they were written, also after photos moved, went, or took their XMP files along."""

from __future__ import annotations

import shutil

import pytest

from command_line import visterm
from shared_exiftool import lent_exiftool  # noqa: F401  # a fixture
from tiny_catalogue import make_tiny_catalogue
from visterm.data.tag_formats.texts import NOTES
from visterm.data.xmp.keywords import read_keywords


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("moved")
    make_tiny_catalogue(folder, n_images=6)
    return folder


@pytest.fixture(params=["xmp", "txt"])
def to(request):
    return request.param


@pytest.fixture
def place(made, tmp_path):
    """A catalogue beside its photos, which a person gave the tag "mine"."""
    shutil.copytree(made / "photos", tmp_path / "photos")
    run = next((made / "catalogue" / "runs").iterdir())
    assert visterm(f"index {run} photos -o cat", tmp_path)[0] == 0
    names = " ".join(f"{i}.jpg" for i in range(6))
    assert visterm(f"tag cat {names} --add mine", tmp_path)[0] == 0
    return tmp_path


def run_in(place, line, code=0):
    answer = visterm(line.replace("export cat", "export cat -k 1"), place)
    assert answer[0] == code, answer[2]
    return answer[2]


def files_of_tags(place):
    """The files of tags, and the hidden notes of those that are texts."""
    files = (path for path in place.rglob("*") if path.suffix in (".xmp", ".txt") or path.name == NOTES)
    return sorted(str(path.relative_to(place)) for path in files)


def move(path, folder):
    folder.mkdir(exist_ok=True)
    path.rename(folder / path.name)


def test_photos_that_moved_without_their_files_leave_nothing_behind(place, to):
    run_in(place, f"export cat --to {to}")
    before = files_of_tags(place)
    for i in range(3):
        move(place / "photos" / f"{i}.jpg", place / "photos" / "moved")
    run_in(place, "index cat photos")
    assert "remove 12 tags from 6 files for 6 photos" in run_in(place, f"export cat --to {to} --undo --dry-run")
    assert files_of_tags(place) == before
    run_in(place, f"export cat --to {to} --undo")
    assert files_of_tags(place) == []
    assert "Nothing to remove from 0 files for 6 photos" in run_in(place, f"export cat --to {to} --undo")


def test_photos_that_moved_twice_and_were_written_to_in_between_are_cleared_everywhere(place, to):
    for folder in ("first", "second"):
        run_in(place, f"export cat --to {to}")
        for path in sorted((place / "photos").rglob("*.jpg")):
            move(path, place / "photos" / folder)
        run_in(place, "index cat photos")
    run_in(place, f"export cat --to {to}")
    assert len(list(place.rglob(f"*.{to}"))) == 18
    run_in(place, f"export cat --to {to} --undo")
    assert files_of_tags(place) == []


def test_photos_that_were_deleted_or_hidden_leave_nothing_behind(place, to):
    run_in(place, f"export cat --to {to}")
    shutil.copy(place / "photos" / "1.jpg", place / "photos" / "1 copy.jpg")
    (place / "photos" / "0.jpg").unlink()
    run_in(place, "index cat photos")
    run_in(place, f"export cat --to {to}")
    run_in(place, "duplicates cat --hide")
    run_in(place, f"export cat --to {to} --undo")
    assert files_of_tags(place) == []


def test_files_that_moved_along_or_were_deleted_with_their_photos_are_no_fault(place, to):
    run_in(place, f"export cat --to {to}")
    for path in (place / "photos").glob("0.*"):
        move(path, place / "photos" / "moved")
    for path in (place / "photos").glob("1.*"):
        path.unlink()
    run_in(place, "index cat photos")
    assert "Removed 10 tags from 5 files for 5 photos" in run_in(place, f"export cat --to {to} --undo")
    assert files_of_tags(place) == []


def test_of_a_file_that_a_person_changed_meanwhile_only_our_tags_are_taken(place):
    run_in(place, "export cat --to xmp")
    file = place / "photos" / "0.jpg.xmp"
    file.write_text(file.read_text().replace("<rdf:li>mine</rdf:li>", "<rdf:li>mine</rdf:li><rdf:li>hers</rdf:li>", 1))
    move(place / "photos" / "0.jpg", place / "photos" / "moved")
    run_in(place, "index cat photos")
    run_in(place, "export cat --to xmp --undo")
    assert files_of_tags(place) == ["photos/0.jpg.xmp"]
    assert read_keywords(file.read_bytes(), "").people_tags == ["hers"]


def test_what_is_out_of_reach_is_said_and_undone_when_it_is_back(place, to):
    run_in(place, f"export cat --to {to}")
    shutil.copytree(place / "photos", place / "drive", ignore=shutil.ignore_patterns("*.xmp", "*.txt"))
    (place / "photos").rename(place / "taken away")
    run_in(place, "index cat drive")
    said = run_in(place, f"export cat --to {to} --undo", code=3)
    assert "Skipped 6 photos (6 not written because the" in said
    (place / "taken away").rename(place / "photos")
    run_in(place, f"export cat --to {to} --undo")
    assert files_of_tags(place) == []


def test_a_photo_that_is_not_where_the_catalogue_knows_it_is_named(place, to):
    run_in(place, f"export cat --to {to}")
    for path in (place / "photos").glob("0.*"):
        move(path, place / "photos" / "moved")
    said = run_in(place, f"export cat --to {to} --undo", code=3)
    assert "0.jpg: not written because the photo does not exist. Index the folder that has it now" in said
    run_in(place, "index cat photos")
    run_in(place, f"export cat --to {to} --undo")
    assert files_of_tags(place) == []


@pytest.mark.skipif(shutil.which("exiftool") is None, reason="exiftool is not installed")
def test_tags_inside_of_photos_are_taken_back_wherever_these_are(place):
    run_in(place, "export cat --to embed --overwrite")
    assert b"mine" in (place / "photos" / "2.jpg").read_bytes()
    move(place / "photos" / "2.jpg", place / "photos" / "moved")
    (place / "photos" / "3.jpg").unlink()
    run_in(place, "index cat photos")
    run_in(place, "export cat --to embed --undo")
    assert b"mine" not in (place / "photos" / "moved" / "2.jpg").read_bytes()
