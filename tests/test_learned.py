"""What a class declares of its learned attributes is all that a file can set, and only as it is declared."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pytest
import scipy.sparse as sp

from visterm.core.errors import DataError
from visterm.core.learned import Array, Csr, DenseOrCsr, Fitted, Flag, Kind, Listed, Number, Record, Text, Whole
from visterm.core.learned import check_learned as check


class Tree:
    """Declares one attribute of each kind."""

    learned: ClassVar[dict[str, Kind]] = {
        "rows_": DenseOrCsr("float32", ("n_images", "n_features_in_")),
        "given_": Csr("float32", ("n_images", "n_tags_"), required=False),
        "order_": Array("int64", ("trees", "n_images"), permuted=True),
        "bounds_": Array("int64", ("trees", "n_leaves + 1"), least=0, most="n_images", ascending=True),
        "medians_": Array("float64", ("trees", "n_leaves")),
        "n_features_in_": Whole(least=1),
        "n_tags_": Whole(least=1),
        "power_": Number(above=0, or_none=True),
        "sparse_": Flag(required=False),
        "hash_": Text(pattern="[0-9a-f]+", required=False),
        "weights_*_": Array("float32", ("n_images", None), required=False),
        "history_": Listed(Record({"epoch": Whole(least=1)})),
        "inner_": Listed(Fitted(), required=False),
    }

    trees = 2

    def get_params(self, deep=True):
        return {"trees": self.trees}

    def __init__(self, **changed):
        vars(self).update(
            n_features_in_=3, n_tags_=2, power_=None, rows_=np.ones((4, 3), np.float32),
            order_=np.array([[0, 1, 2, 3], [3, 1, 0, 2]]), bounds_=np.array([[0, 2, 4], [0, 1, 4]]),
            medians_=np.zeros((2, 2)), history_=[{"epoch": 1, "loss": 0.5}],
        )  # fmt: skip
        vars(self).update(changed)
        for name in [name for name, value in changed.items() if value is ...]:
            delattr(self, name)


def csr(data=(1.0, 1.0), indices=(0, 1), indptr=(0, 1, 1, 2, 2), shape=(4, 2)):
    return sp.csr_array((np.array(data, np.float32), np.array(indices), np.array(indptr)), shape=shape)


RIGHT = {
    "as it is": {},
    "a matrix as CSR": {"rows_": sp.csr_array(np.ones((4, 3), np.float32))},
    "tags": {"given_": csr()},
    "a number": {"power_": 2, "sparse_": True, "hash_": "0f"},
    "numbered arrays": {"weights_0_": np.ones((4, 1), np.float32), "weights_11_": np.ones((4, 7), np.float32)},
    "an estimator inside": {"inner_": [Tree()]},
}

WRONG = {
    "rows_ of Tree is missing": {"rows_": ...},
    "more_ is not declared": {"more_": 1},
    "weights_x_ is not declared": {"weights_x_": 1},
    "rows_ is an array of float64 (4, 3); expected a": {"rows_": np.ones((4, 3))},
    "rows_ is [[1.0]]; expected": {"rows_": [[1.0]]},
    "expected an array of int64 (trees = 2, n_images = 4)": {"order_": np.zeros((2, 5), np.int64)},
    "rows_ has infinity or NaN": {"rows_": np.full((4, 3), np.nan, np.float32)},
    "given_ is a CSR matrix of float32 (5, 2)": {"given_": csr(indptr=(0, 1, 1, 1, 1, 2), shape=(5, 2))},
    "given_ has columns out of order or twice": {"given_": csr(indices=(1, 1), indptr=(0, 2, 2, 2, 2))},
    "order_ is not a permutation": {"order_": np.array([[0, 1, 2, 3], [0, 0, 1, 2]])},
    "bounds_ has numbers that fall": {"bounds_": np.array([[0, 2, 1], [0, 1, 4]])},
    "bounds_ has 9; expected at most n_images = 4": {"bounds_": np.array([[0, 2, 9], [0, 1, 4]])},
    "medians_ is an array of float64 (2, 3)": {"medians_": np.zeros((2, 3))},
    "n_tags_ has 0; expected at least 1": {"n_tags_": 0},
    "n_tags_ is True; expected a whole number": {"n_tags_": True},
    "power_ is nan; expected a finite number": {"power_": float("nan")},
    "power_ is 1000": {"power_": 10**400},
    "power_ has 0; expected above 0": {"power_": 0},
    "sparse_ is 'no'; expected True or False": {"sparse_": "no"},
    "hash_ is '../x'; expected a text of the form": {"hash_": "../x"},
    "weights_3_ is an array of float32 (5, 1)": {"weights_3_": np.ones((5, 1), np.float32)},
    "history_ is {'epoch': 1}; expected a list": {"history_": {"epoch": 1}},
    "history_ [0] ['epoch'] has 0": {"history_": [{"epoch": 0}]},
    "inner_ [0] power_ has -1; expected above 0": {"inner_": [Tree(power_=-1)]},
    "rows_ is empty": {"rows_": np.ones((0, 3), np.float32), "order_": np.ones((2, 0), np.int64)},
}


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_as_declared_is_taken(name):
    check(Tree(**RIGHT[name]))


@pytest.mark.parametrize("message", WRONG)
def test_what_is_not_as_declared_is_refused_by_name(message):
    with pytest.raises(DataError) as refused:
        check(Tree(**WRONG[message]))
    assert message in str(refused.value)


def test_a_class_has_the_declarations_of_its_bases_and_a_check_of_its_own():
    class Further(Tree):
        learned: ClassVar[dict[str, Kind]] = {"extra_": Whole()}

        def _check_learned(self):
            if self.extra_ != self.n_tags_:
                raise DataError("extra_ is not the number of tags")

    check(Further(extra_=2))
    for changed, message in (({}, "extra_ of Further is missing"), ({"extra_": 3}, "not the number of tags")):
        with pytest.raises(DataError, match=message):
            check(Further(**changed))
