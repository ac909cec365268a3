"""What the command line cannot do, it refuses at once, in plain words that name what was typed."""

from __future__ import annotations

import shlex

import numpy as np
import pytest
from PIL import Image

from visterm.app.tagger import Tagger
from visterm.cli import main
from visterm.core.errors import UserError

TEXT = "photo,1,2,3\n"


@pytest.fixture
def command(monkeypatch, capsys, tmp_path):
    """Run the command line in an empty folder: exit code, standard output and standard error."""

    def run(line):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr("sys.argv", ["visterm", *shlex.split(line)])
        with pytest.raises(SystemExit) as ended:
            main()
        shown = capsys.readouterr()
        return ended.value.code, shown.out, shown.err

    return run


@pytest.fixture
def refusal(command):
    """Give the one line with which a command is refused."""

    def run(line):
        code, out, err = command(line)
        assert (code, out) == (2, "")
        assert err.startswith("visterm: ")
        assert err.count("\n") == 1, err
        return err

    return run


@pytest.fixture
def photos(tmp_path):
    """A folder of 12 small pictures, half of them red and half blue, with their tags in tags.csv."""
    folder = tmp_path / "photos"
    folder.mkdir()
    rows = ["file_name,tags"]
    rng = np.random.default_rng(0)
    for number in range(12):
        pixels = rng.integers(0, 40, (32, 32, 3), np.uint8)
        pixels[..., 0 if number % 2 else 2] += 200
        Image.fromarray(pixels).save(folder / f"{number:02}.png")
        rows.append(f"{number:02}.png,{'red' if number % 2 else 'blue'};photo")
    (tmp_path / "tags.csv").write_text("\n".join(rows), encoding="utf-8")
    return folder


@pytest.fixture
def run(photos):
    """A run of these pictures."""
    small = {"colours": 8, "codebook": 12, "sample_blocks": 500}
    tagger = Tagger(model="ridge", encoder_params=small).fit(photos, photos.parent / "tags.csv")
    tagger.save(photos.parent / "run")
    return photos.parent / "run"


@pytest.mark.parametrize(
    ("name", "kind"), [("a.png", "PNG"), ("a.JPG", "JPEG"), ("a.jpeg", "JPEG"), ("a.webp", "WEBP")]
)
def test_a_picture_is_of_the_kind_that_its_name_says(name, kind, command, run, tmp_path):
    code, _, err = command(f"explain run photos/01.png red -o {name}")
    assert code == 0, err
    with Image.open(tmp_path / name) as picture:
        assert picture.format == kind


@pytest.mark.parametrize(("name", "said"), [("a.bmp", "ends in .bmp"), ("a", "has no ending")])
def test_a_picture_of_another_kind_is_refused_before_the_run_is_looked_at(name, said, refusal):
    assert f"{name} {said}; expected the name of a picture that ends in .png, .jpg, .jpeg, .webp." in refusal(
        f"explain nowhere photo.jpg red -o {name}"
    )


def test_a_history_is_drawn_as_its_name_says(tmp_path):
    from visterm.app.plot import plot_history

    pytest.importorskip("matplotlib")
    plot_history([{"epoch": 1, "loss": 1.0}], tmp_path / "history.jpg")
    with Image.open(tmp_path / "history.jpg") as picture:
        assert picture.format == "JPEG"
    with pytest.raises(UserError, match=r"history\.pdf ends in \.pdf"):
        plot_history([{"epoch": 1, "loss": 1.0}], tmp_path / "history.pdf")
