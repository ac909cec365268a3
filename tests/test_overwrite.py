"""Outputs that are there already: replaced with --overwrite or by a yes on a terminal, and other things never."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from command_line import visterm
from tiny_catalogues import draw_photos, write_tags
from visterm import Tagger
from visterm.cli import options
from visterm.core.errors import UserError

FIT = "fit photos --tags tags.csv -o {out} --model prior --encoder-set codebook=4"
TUNE = "tune photos --tags tags.csv -o {out} --model knn --grid n_neighbors=1,2"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with photos, their tags, a run, and a catalogue of it."""
    folder = tmp_path_factory.mktemp("outputs")
    write_tags(folder / "tags.csv", draw_photos(folder / "photos", 8))
    for line in (FIT.format(out="run"), "index run photos -o catalogue"):
        assert visterm(line, folder)[0] == 0
    return folder


def contents(path):
    files = [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())
    return {file.name: file.read_bytes() for file in files if not file.name.startswith("catalogue.sqlite")}


COMMANDS = {
    "fit": (FIT.format(out="run"), "run", "run is a run already"),
    "tune": (TUNE.format(out="run"), "run", "run is a run already"),
    "explain": ("explain run photos/000.png red -o photos/001.png", "photos/001.png", "photos/001.png exists already"),
    "tags": ("tags run --suggest -o tags.csv", "tags.csv", "tags.csv exists already"),
    "parts": ("tags run --parts known -o tags.csv", "tags.csv", "tags.csv exists already"),
    "mistakes": ("mistakes catalogue -o tags.csv", "tags.csv", "tags.csv exists already"),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_what_is_there_is_replaced_only_if_that_is_asked_for(command, place):
    line, there, message = COMMANDS[command]
    before = contents(place / there)
    code, _, err = visterm(line, place)
    replace = "replace it: --overwrite" if command in ("fit", "union") else "remove it"
    assert (code, err) == (2, f"visterm: {message}. Choose another name, or {replace}.")
    assert contents(place / there) == before


@pytest.mark.parametrize("command", ["fit", "tune"])
def test_what_is_no_such_folder_is_never_replaced(command, place):
    line = COMMANDS[command][0]
    line = f"{line.replace(' -o run', '')} {'' if command == 'tune' else '--overwrite'} -o"
    for there in ("photos", "catalogue", "tags.csv"):
        before = contents(place / there)
        code, _, err = visterm(f"{line} {there}", place)
        assert code == 2
        assert f"{there} exists and is not a run of visterm" in err
        assert contents(place / there) == before


def test_a_file_never_takes_the_place_of_a_folder(place):
    code, _, err = visterm("tags run --suggest -o photos", place)
    assert (code, err) == (2, "visterm: photos is a folder; expected the name of a file.")


def test_a_run_that_holds_something_of_a_person_is_never_replaced(place):
    assert visterm(FIT.format(out="mine"), place)[0] == 0
    (place / "mine" / "notes.txt").write_text("what I tried")
    code, _, err = visterm(f"{FIT.format(out='mine')} --overwrite", place)
    assert code == 2
    assert "mine is a run, but visterm did not write all that it holds (notes.txt), so it is not replaced." in err
    (place / "mine" / "notes.txt").unlink()
    assert visterm(f"{FIT.format(out='mine')} --overwrite --min-count 3", place)[0] == 0
    assert Tagger.load(place / "mine").facts["tags"] < 6


@pytest.mark.parametrize("answer", ["y", "n"])
def test_on_a_terminal_a_person_is_asked(answer, tmp_path, monkeypatch):
    monkeypatch.setattr(options, "at_a_terminal", lambda: True)
    (tmp_path / "aliases.csv").write_text("alias,tag\n")
    asked = {}

    def command():
        asked["replace"] = options.may_replace(tmp_path / "aliases.csv", overwrite=False)

    import typer

    questions = typer.Typer()
    questions.command()(command)
    done = CliRunner().invoke(questions, [], input=f"{answer}\n")
    assert "aliases.csv exists already. Replace it? [y/N]" in done.stderr
    if answer == "y":
        assert asked == {"replace": True}
    else:
        assert isinstance(done.exception, UserError)
        assert str(done.exception).endswith("aliases.csv stays as it is. Choose another name.")
