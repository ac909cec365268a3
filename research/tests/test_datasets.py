"""Data sets for comparisons: Mulan's files, large dictionaries drawn from a seed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from visterm.core.errors import TagFileError, UserError
from visterm.data.corpus import Corpus
from visterm_research.comparison.image_problems import holdout
from visterm_research.data.drawn_tags import draw_dictionary, draw_pairs, draw_visterms
from visterm_research.data.mulan import read_mulan

LABELS = (
    '<labels xmlns="http://mulan.sourceforge.net/labels"><label name="sea"/><label name="red car"></label></labels>'
)
HEAD = """@relation photos

@attribute width numeric
@attribute sea {0,1}
@attribute 'red car' {0, 1}
@attribute night {0,1}
@data
"""


def write(folder: Path, rows: str, head: str = HEAD, labels: str = LABELS) -> tuple[Path, Path]:
    arff, xml = folder / "photos.arff", folder / "photos.xml"
    arff.write_text(head + rows, encoding="utf-8")
    xml.write_text(labels, encoding="utf-8")
    return arff, xml


@pytest.mark.parametrize("rows", ["{0 2.5,2 1}\n% a remark\n{}\n{1 1,3 1}\n", "2.5,0,1,0\n0,0,0,0\n0,1,0,1\n"])
def test_mulan_rows_are_read_alike_sparse_and_dense(tmp_path: Path, rows: str) -> None:
    data = read_mulan(*write(tmp_path, rows))
    assert data.features == ["width", "night"]
    assert data.tags == ["sea", "red car"]
    np.testing.assert_array_equal(data.X.toarray(), [[2.5, 0], [0, 0], [0, 1]])
    np.testing.assert_array_equal(data.Y.toarray(), [[0, 1], [0, 0], [1, 0]])


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ("{0 1,4 1}\n", "line 8.*column 4"),
        ("{1 1,1 1}\n", "line 8.*twice"),
        ("1,0,0\n", "line 8.*3 values; expected 4"),
        ("1,0,zero,0\n", "line 8.*zero"),
    ],
)
def test_a_bad_row_of_mulan_is_named_by_its_line(tmp_path: Path, rows: str, says: str) -> None:
    with pytest.raises(TagFileError, match=says):
        read_mulan(*write(tmp_path, rows))


def test_mulan_files_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    arff, xml = write(tmp_path, "0,0,0,0\n")
    with pytest.raises(TagFileError, match="There is no ARFF file"):
        read_mulan(tmp_path / "other.arff", xml)
    with pytest.raises(TagFileError, match="type 'string'"):
        read_mulan(*write(tmp_path, "", head="@attribute name string\n@data\n"))
    with pytest.raises(TagFileError, match="no line '@data'"):
        read_mulan(*write(tmp_path, "", head="@attribute sea {0,1}\n"))
    with pytest.raises(TagFileError, match="'sea', which is no attribute"):
        read_mulan(*write(tmp_path, "1\n", head="@attribute 'red car' {0,1}\n@data\n"))
    with pytest.raises(TagFileError, match="no <label"):
        read_mulan(*write(tmp_path, "", labels="<labels/>"))
    assert arff.exists()


@pytest.mark.shared
def test_delicious_is_as_large_as_its_paper_says(shared: Path) -> None:
    folder = shared / "data" / "delicious"
    train, test = (
        read_mulan(folder / f"delicious-{part}.arff", folder / "delicious.xml") for part in ("train", "test")
    )
    assert train.X.shape == (12920, 500)
    assert test.Y.shape == (3185, 983)
    assert (train.Y.nnz + test.Y.nnz) / 16105 == pytest.approx(19.02, abs=0.01)


def test_drawn_pairs_follow_zipfs_law() -> None:
    dictionary = draw_dictionary(1000, random_state=0)
    counts = np.asarray(draw_pairs(40_000, dictionary, random_state=1).sum(axis=0)).ravel()
    tenth, hundredth = counts[5:15].mean(), counts[80:125].mean()
    assert 5 < tenth / hundredth < 11  # below 10: a tag that an image draws twice counts once
    assert counts.max() == counts[:3].max()


def test_tags_of_a_drawn_image_are_mostly_of_one_field() -> None:
    dictionary = draw_dictionary(600, random_state=0)
    Y = draw_pairs(2000, dictionary, tags_an_image=4, random_state=1)
    field = dictionary.field[dictionary.family[Y.indices]]
    rows = np.repeat(np.arange(2000), np.diff(Y.indptr))
    fields = sp.csr_array((np.ones(field.size), (rows, field)), shape=(2000, field.max() + 1)).toarray()
    several = np.diff(Y.indptr) >= 3
    assert (fields.max(axis=1) / fields.sum(axis=1))[several].mean() > 0.8
    assert np.diff(Y.indptr).min() >= 1


def test_without_noise_all_tags_of_a_drawn_image_are_of_one_field() -> None:
    dictionary = draw_dictionary(600, random_state=0)
    for noise, alone in ((0.0, True), (0.5, False)):
        Y = draw_pairs(500, dictionary, tags_an_image=4, noise=noise, random_state=1)
        field = dictionary.field[dictionary.family[Y.indices]]
        first = np.repeat(field[Y.indptr[:-1]], np.diff(Y.indptr))
        assert (field == first).all() == alone


def test_drawn_dictionaries_are_the_same_from_the_same_seed_only() -> None:
    first, again, other = (draw_visterms(50, 30, n_features=80, random_state=seed) for seed in (1, 1, 2))
    assert (first.X != again.X).nnz == 0
    assert (first.Y != again.Y).nnz == 0
    assert (first.X != other.X).nnz > 0


def test_drawn_visterms_are_unit_rows_that_tell_of_tags() -> None:
    drawn = draw_visterms(1500, 24, n_features=300, random_state=0)
    np.testing.assert_allclose(drawn.X.power(2).sum(axis=1), 1, rtol=1e-5)
    cosines = (drawn.X[:750] @ drawn.X[750:].T).toarray()
    nearest = cosines.argmax(axis=1) + 750
    shared = drawn.Y[:750].multiply(drawn.Y[nearest]).sum(axis=1) > 0
    chance = drawn.Y[:750].multiply(drawn.Y[750:]).sum(axis=1) > 0
    assert shared.mean() > chance.mean() + 0.3


@pytest.mark.parametrize("settings", [{"n_images": 0}, {"tags_an_image": 0.5}])
def test_sizes_that_cannot_be_drawn_are_refused(settings: dict[str, float]) -> None:
    dictionary = draw_dictionary(20)
    with pytest.raises(UserError, match=next(iter(settings))):
        draw_pairs(**{"n_images": 10, "dictionary": dictionary, **settings})


@pytest.fixture
def corpus() -> Corpus:
    names = [f"{i}.jpg" for i in range(10)]
    return Corpus.of([Path(name) for name in names], names, [["sea"]] * 10)


def test_a_holdout_is_random_but_the_same_for_a_seed(corpus):
    train, held = holdout(corpus, 0.3, 1)
    assert len(train) == 7
    assert len(held) == 3
    assert sorted(train.names + held.names) == corpus.names
    assert train.names == sorted(train.names)
    assert holdout(corpus, 0.3, 1)[1].names == held.names
    assert len({tuple(holdout(corpus, 0.3, seed)[1].names) for seed in range(20)}) > 10


@pytest.mark.parametrize(("n", "share", "held"), [(10, 0, 0), (10, 0.01, 1), (1, 0.5, 0), (0, 0.5, 0), (2, 0.9, 1)])
def test_a_holdout_leaves_something_on_both_sides_where_it_can(corpus, n, share, held):
    first, second = holdout(corpus.subset(range(n)), share, 0)
    assert (len(first), len(second)) == (n - held, held)
