"""Estimators taken apart into JSON and arrays, with those inside them, and put together again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import scipy.sparse as sp

from refusals import refused
from visterm.core.checks import check_count
from visterm.core.errors import DataError, UserError, VistermError
from visterm.core.learned import Array, Csr, Fitted, Kind, Listed, Text, Whole
from visterm.core.packing import json_params, learned_hash, learned_parts, pack, unpack
from visterm.core.registry import Registry, TableEntry
from visterm.core.tables import MODELS


class Box:
    """Holds what it is given."""

    learned: ClassVar[dict[str, Kind]] = {
        "boxes_": Listed(Fitted(), required=False),
        "count_": Whole(required=False),
        "empty_": Listed(Whole(), required=False),
        "given_": Csr("float32", ("n_rows", None), required=False),
        "names_": Listed(Text(), required=False),
        "weights_": Array("float64", (None,), required=False),
        "square_": Array("float32", ("n_rows", "n_rows"), required=False),
    }

    def __init__(self, *, shape=None, count: int | None = None):
        self.shape = shape
        self.count = count

    def get_params(self, deep=True):
        return {"shape": self.shape, "count": self.count}

    def check_stored_settings(self):
        if self.count is not None:
            check_count(self.count, "count")

    def holding(self, **learned):
        vars(self).update(learned)
        return self


class Silent:
    """Declares nothing."""

    def get_params(self, deep=True):
        return {}


class Other(Box):
    """In no table."""


REGISTRY = Registry(
    "box",
    [TableEntry("box", f"{__name__}:Box", "for tests"), TableEntry("silent", f"{__name__}:Silent", "for tests")],
    group="visterm.no_boxes",
)


def nested():
    inner = Box(shape=2).holding(weights_=np.arange(3.0), given_=sp.csr_array(np.eye(2, dtype=np.float32)), count_=4)
    return Box(shape="outer").holding(
        square_=np.ones((2, 2), np.float32),
        boxes_=[inner, Box().holding(boxes_=[Box().holding(names_=np.array(["a", "b"], dtype=object))])],
        empty_=[],
    )


def test_estimators_inside_estimators_come_back_to_the_byte():
    description, arrays = pack(nested(), REGISTRY)
    assert sorted(arrays) == [
        "boxes_.0.given_:data", "boxes_.0.given_:indices", "boxes_.0.given_:indptr", "boxes_.0.given_:shape",
        "boxes_.0.weights_", "square_",
    ]  # fmt: skip
    again = unpack(REGISTRY, json.loads(json.dumps(description)), arrays)
    assert again.shape == "outer"
    assert again.empty_ == []
    first, second = again.boxes_
    assert (first.shape, first.count_) == (2, 4)
    np.testing.assert_array_equal(first.weights_, np.arange(3.0), strict=True)
    np.testing.assert_array_equal(first.given_.toarray(), np.eye(2, dtype=np.float32), strict=True)
    assert second.boxes_[0].names_.tolist() == ["a", "b"]
    assert learned_hash(again) == learned_hash(nested())


@pytest.mark.parametrize("where", ["outer", "inner", "sparse"])
def test_the_hash_changes_with_any_array_at_any_depth(where):
    changed = nested()
    array = {"outer": changed.square_, "inner": changed.boxes_[0].weights_, "sparse": changed.boxes_[0].given_.data}[
        where
    ]
    array.flat[0] += 1
    assert learned_hash(changed) != learned_hash(nested())


def test_estimators_among_the_parameters_become_their_names_and_parameters():
    shape = [("first", Box(shape=np.int64(3))), {"folder": Path("a"), "seed": np.random.default_rng(0)}]
    params = json_params(Box(shape=shape), REGISTRY)
    assert params["shape"] == [("first", ["box", {"shape": 3, "count": None}]), {"folder": "a", "seed": None}]


def test_what_json_cannot_hold_is_refused_by_name():
    with refused("shape", value=[{1j}]):
        pack(Box(shape=[{1j}]), REGISTRY)
    with pytest.raises(UserError, match="Other is not a registered box"):
        pack(Other(), REGISTRY)


REFUSED = {
    "boxes_.0.given_, row 1: it has the index 100000000": lambda _, arrays: arrays["boxes_.0.given_:indices"].fill(
        10**8
    ),
    "boxes_.0.given_, row 2: it ends before it begins": lambda _, arrays: arrays["boxes_.0.given_:indptr"].put(1, 9),
    "boxes_.0.given_ lacks a part": lambda _, arrays: arrays.pop("boxes_.0.given_:shape"),
    "square_ is an array of int8 (2, 2); expected": lambda _, arrays: arrays.update(square_=np.ones((2, 2), np.int8)),
    "square_ has infinity or NaN": lambda _, arrays: arrays["square_"].fill(np.nan),
    "more_ is not an attribute that its class declares": lambda _, arrays: arrays.update(more_=np.ones(2)),
    "get_params is not an attribute that its class declares": lambda box, _: box["values"].update(
        get_params={"value": 1}
    ),
    "an array 'boxes_.7.weights_' that belongs to no": lambda _, arrays: arrays.update(
        {"boxes_.7.weights_": np.ones(2)}
    ),
    "boxes_ is not a value, array or list of estimators": lambda box, _: box["values"].update(
        boxes_={"estimators": {}}
    ),
    "The file is not an estimator description": lambda box, _: box.pop("params"),
    "boxes_.0. is not an estimator description": lambda box, _: box["values"]["boxes_"]["estimators"].__setitem__(
        0, []
    ),
    "The box box has no setting 'size'": lambda box, _: box["params"].update(size=1),
    "count is 'many'; expected int | None": lambda box, _: box["params"].update(count="many"),
    "count is 9223372036854775808; expected a finite number": lambda box, _: box["params"].update(count=2**63),
    "count is -1; expected": lambda box, _: box["params"].update(count=-1),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_is_not_as_it_was_packed_is_refused_by_name(message):
    description, arrays = pack(nested(), REGISTRY)
    description = json.loads(json.dumps(description))
    REFUSED[message](description, arrays)
    with pytest.raises(VistermError) as refused:
        unpack(REGISTRY, description, arrays)
    assert message in str(refused.value)


def test_estimators_inside_estimators_inside_estimators_end_somewhere():
    description, arrays = pack(Box(), REGISTRY)
    for _ in range(200):
        description = {**description, "values": {"boxes_": {"estimators": [description]}}}
    with pytest.raises(DataError, match="inside more than 8 others"):
        unpack(REGISTRY, description, arrays)


def test_what_a_class_does_not_declare_is_not_saved():
    with pytest.raises(UserError, match="Box does not declare more_ in `learned`"):
        pack(Box().holding(more_=1), REGISTRY)


def test_a_class_that_declares_nothing_can_learn_nothing():
    learned = Silent()
    learned.rows_ = np.ones((3, 2), np.float32)
    with pytest.raises(UserError, match=r"Silent does not declare rows_.*Declare its type and shape in the class"):
        pack(learned, REGISTRY)
    box = {"name": "silent", "params": {}, "values": {}}
    with pytest.raises(DataError, match="rows_ is not an attribute that its class declares"):
        unpack(REGISTRY, box, {"rows_": learned.rows_})
    with pytest.raises(DataError, match="n_ is not an attribute that its class declares"):
        unpack(REGISTRY, {**box, "values": {"n_": {"value": 3}}}, {})
    assert isinstance(unpack(REGISTRY, box, {}), Silent)


def test_bytes_learned_are_counted_inside_estimators_too_and_sparse_ones_with_their_indices():
    matrix = sp.csr_array(np.eye(3, dtype=np.float32))
    inner = Box().holding(rows_=np.zeros((2, 5), np.float32), name_="no array")
    outer = Box().holding(members_=[inner, inner], sparse_=matrix, _hidden=np.zeros(9), count_=7)
    of_matrix = matrix.data.nbytes + matrix.indices.nbytes + matrix.indptr.nbytes
    assert sum(part.nbytes for _, part in learned_parts(outer, "")) == 2 * 40 + of_matrix


# -- settings that were taken away ------------------------------------------------------------------------------------


def test_settings_that_models_share_can_be_set_in_each_but_where_a_model_has_none():
    assert MODELS.create("vse_ens", patience=3, l2=0.5).get_params()["patience"] == 3
    assert MODELS.create("vse_ens").learning_rate == 0.1  # where wsabie has 0.2
    assert "bias" not in MODELS.create("objects_and_parts").get_params()
    with refused("model.bias", value=1.0):
        MODELS.create("objects_and_parts", bias=1.0)
