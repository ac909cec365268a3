"""What the command line cannot do, it refuses at once, in plain words that name what was typed."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from visterm.cli import main
from visterm.cli.command_line import words_last
from visterm.cli.output import Bars
from visterm.core.errors import UserError
from visterm.core.progress import reported
from visterm.tagging.explain import format_of
from visterm.tagging.tagger import Tagger


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
    """Return the one line with which a command is refused."""

    def run(line):
        code, out, err = command(line)
        assert (code, out) == (2, "")
        assert err.startswith("visterm: ")
        assert err.count("\n") == 1, err
        return err

    return run


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """A folder with 12 small pictures, half of them red and half blue, their tags in tags.csv, and a run of them."""
    library = tmp_path_factory.mktemp("library")
    folder = library / "photos"
    folder.mkdir()
    rows = ["file_name,tags"]
    rng = np.random.default_rng(0)
    for number in range(12):
        pixels = rng.integers(0, 40, (32, 32, 3), np.uint8)
        pixels[..., 0 if number % 2 else 2] += 200
        Image.fromarray(pixels).save(folder / f"{number:02}.png")
        rows.append(f"{number:02}.png,{'red' if number % 2 else 'blue'};photo")
    (library / "tags.csv").write_text("\n".join(rows), encoding="utf-8")
    small = {"colours": 8, "codebook": 12, "sample_blocks": 500}
    Tagger(model="ridge", encoder_params=small, n_jobs=1).fit(folder, library / "tags.csv").save(library / "run")
    return library


@pytest.fixture
def photos(library, tmp_path):
    """A copy of these pictures, with their tags beside them."""
    shutil.copy(library / "tags.csv", tmp_path)
    return Path(shutil.copytree(library / "photos", tmp_path / "photos"))


@pytest.fixture
def run(library, photos):
    """A copy of the run beside them."""
    return Path(shutil.copytree(library / "run", photos.parent / "run"))


@pytest.mark.parametrize(
    ("name", "kind"), [("a.png", "PNG"), ("a.JPG", "JPEG"), ("a.jpeg", "JPEG"), ("a.webp", "WEBP")]
)
def test_a_picture_is_of_the_kind_that_its_name_says(name, kind, command, run, tmp_path):
    code, _, err = command(f"explain run photos/01.png red -o {name}")
    assert code == 0, err
    with Image.open(tmp_path / name) as picture:
        assert picture.format == kind


@pytest.mark.parametrize(("name", "said"), [("a.bmp", "ends in .bmp"), ("a", "has no extension")])
def test_a_picture_of_another_kind_is_refused_before_the_run_is_looked_at(name, said, refusal):
    assert f"{name} {said}; expected the name of a picture that ends in .png, .jpg, .jpeg, .webp." in refusal(
        f"explain nowhere photo.jpg red -o {name}"
    )


def test_a_picture_has_the_format_that_its_name_says():
    assert (format_of("heat.jpg"), format_of("HEAT.PNG")) == ("JPEG", "PNG")
    with pytest.raises(UserError, match=r"heat\.pdf ends in \.pdf"):
        format_of("heat.pdf")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("fit nowhere -o out --encoder onnx:missing.onnx", "There is no file missing.onnx."),
        ("fit nowhere -o out --encoder onnx", "Name it: --encoder onnx:PATH, or --encoder-set path=PATH."),
        ("fit nowhere -o out --encoder chain:visterms+onnx:missing.onnx", "There is no file missing.onnx."),
        ("fit nowhere -o out --encoder-set codebook=0", "--encoder-set codebook is 0; expected a whole number"),
        ("encode nowhere -o out --encoder onnx:missing.onnx", "There is no file missing.onnx."),
        ("encode nowhere -o out --encoder-set codebook=0", "--encoder-set codebook is 0; expected a whole number"),
        ("tune nowhere -o out --grid dim=4 --encoder onnx:missing.onnx", "There is no file missing.onnx."),
        ("tune nowhere -o out --grid dim", "--grid 'dim' is not understood"),
        ("tune nowhere -o out --grid dim=4,0", "--grid dim is 0"),
        ("tune nowhere -o out --grid dmi=4", "Did you mean 'dim'?"),
        ("tune nowhere -o out --grid dim=4 --set epochs", "--set 'epochs' is not understood"),
        ("fit nowhere -o out --model wsabie --encoder-set codebook=4 --set dim=abc", "--set dim is 'abc'; expected"),
        ("tune nowhere -o out --grid dim=4 --set epochs=many", "--set epochs is 'many'; expected a whole number"),
        ("tune nowhere -o out --grid dim=4:9", "--random"),
    ],
)
def test_a_setting_that_cannot_be_is_refused_before_any_image_is_looked_for(line, message, refusal, tmp_path):
    assert message in refusal(line)
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_list_of_trials_is_named_before_any_image_is_looked_for(refusal, tmp_path):
    (tmp_path / "out.tune.jsonl").write_text("my notes\n", encoding="utf-8")
    assert "out.tune.jsonl, line 1, is not a trial" in refusal("tune nowhere -o out --grid dim=4")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--queries missing.csv", "There is no query file missing.csv."),
        ("--tag-rules missing.toml", "There is no file of tag rules missing.toml"),
        ("--queries tags --against photos", "photos is not a folder written by visterm; expected a run"),
    ],
)
def test_a_file_that_is_not_there_is_named_before_any_image_is_looked_for(options, message, refusal, run):
    assert message in refusal(f"evaluate run nowhere {options}")


def test_another_encoder_than_that_of_the_features_is_refused_before_its_network_is_looked_for(refusal):
    features = Path(__file__).parent / "data" / "tiny" / "features"
    for command in ("fit", "tune --grid dim=4,8"):
        message = refusal(f"{command} {features} --tags nowhere.csv --encoder onnx:x -o out")
        assert f"The features in {features} were made by the encoder 'visterms', not by 'onnx:x'." in message
        assert "Leave --encoder out" in message


def test_the_line_of_a_trial_ends_with_the_figure_of_the_table(command, photos):
    assert command("encode photos -o features --encoder-set codebook=12 --encoder-set sample_blocks=500")[0] == 0
    for model, grid in (("wsabie", "learning_rate=0.01,0.3 --set dim=4 --set epochs=6"), ("ridge", "alpha=0.1,9")):
        code, out, err = command(f"tune features --tags tags.csv -o {model} --model {model} --grid {grid}")
        assert code == 0, err
        header, *rows = (line.split() for line in out.splitlines())
        assert header[1] == "map"
        said = [line.split() for line in err.splitlines() if line.split()[1:3] == ["of", "2:"]]
        assert [words[-2] for words in said] == ["map", "map"]
        assert sorted(words[-1] for words in said) == sorted(row[1] for row in rows)


def test_a_task_that_an_error_ends_before_its_first_step_leaves_no_line(capsys):
    bars = Bars()
    with pytest.raises(UserError), reported(bars, "encode", 5):
        raise UserError("no")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    "line",
    ["fit {} -o out", "encode {} -o out", "index run {} -o out", "annotate run {}", "tune {} -o out --grid dim=4"],
)
def test_a_folder_without_images_is_refused_with_what_was_looked_for_and_what_is_there(line, refusal, run, tmp_path):
    (tmp_path / "junk" / "deep").mkdir(parents=True)
    assert "has no files." in refusal(line.format("junk"))
    (tmp_path / "junk" / "deep" / "letter.txt").touch()
    said = refusal(line.format("junk"))
    assert "no images in the folder junk, nor in its sub-folders" in said
    assert "Looked for files that end in .jpg, .jpeg, .png" in said
    assert "Its 1 file (such as 'deep/letter.txt')" in said


def test_a_folder_that_is_not_there_is_named_in_full_and_a_file_as_one(refusal, photos, tmp_path):
    assert f"There is no folder 'nowhere' in {tmp_path}." in refusal("fit nowhere -o out")
    assert "tags.csv is a file; expected the folder of images." in refusal("encode tags.csv -o out")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.npy", b"photo,1,2,3\n", "cannot be read as a NumPy matrix: it begins with b'photo,'"),
        (
            "a.npz",
            b"photo,1,2,3\n",
            "cannot be read as a sparse matrix of scipy.sparse.save_npz: it begins with b'photo,'",
        ),
        ("a.npy", b"", "a.npy cannot be read as a NumPy matrix: it is empty. Write it with numpy.save"),
        ("a.npy", np.array([{}, "a"], object), "it holds Python objects, which are never loaded"),
        ("a.npy", np.eye(30), "it is truncated"),
    ],
)
def test_a_features_file_of_another_kind_is_refused_in_plain_words(name, content, message, command, photos, tmp_path):
    file = tmp_path / name
    if isinstance(content, bytes):
        file.write_bytes(content)
    else:
        np.save(file, content, allow_pickle=True)
    if message == "it is truncated":
        file.write_bytes(file.read_bytes()[:-100])
    (tmp_path / "a.names.txt").write_text("00.png\n", encoding="utf-8")
    code, out, said = command(f"fit --tags tags.csv -o out --encoder precomputed:{name}")
    assert (code, out) == (2, "")
    assert said.splitlines()[-1].startswith("visterm: ")
    assert message in said
    assert "allow_pickle" not in said


def test_names_of_options_are_refused_in_our_own_words(refusal):
    assert "No such option: --jsn. Did you mean '--json'? See: " in refusal("search a --jsn b")


def test_a_search_may_begin_with_a_word_that_shall_not_be_there(command, refusal, run):
    assert command("index run photos -o catalogue")[0] == 0
    expected = command("search catalogue -k 3 -- -red")
    assert expected[0] == 0
    for line in ("-red -k 3", "'-red' -k3", "-k 3 '-\"red\"'", "' -red' -k 3"):
        assert command(f"search catalogue {line}")[:2] == expected[:2], line
    assert "No such option: -x" in refusal("search catalogue -x")
    assert "Option '-k' requires an argument" in refusal("search catalogue -red -k")


@pytest.mark.parametrize(
    ("typed", "put"),
    [
        (["c", "-sky"], ["c", "--", "-sky"]),
        (["c", "-sky sea", "-k", "-5"], ["c", "-k", "-5", "--", "-sky sea"]),
        (["c", "-kite", "-k5", "--json"], ["c", "-k5", "--json", "--", "-kite"]),
        (["c", "sky", "--how", "-sum"], ["c", "sky", "--how", "-sum"]),
        (["c", "-k", "5", "--", "-sky"], ["c", "-k", "5", "--", "-sky"]),
        (["-sky", "c"], ["c", "--", "-sky"]),
        (["c", "-海", "-é", "-x"], ["c", "-x", "--", "-海", "-é"]),
        (["c", "--sky", "-h"], ["c", "--sky", "-h"]),
    ],
)
def test_words_are_told_from_options(typed, put):
    assert words_last(typed, {"-k": True, "--how": True, "--json": False}, {"-h"}) == put
