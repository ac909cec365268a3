"""Deep taggers in several processes: the weights of one process, with sparse gradients of the words."""

# ruff: noqa: E402 (what follows the skip needs torch)
from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra 'torch' is not installed")

from planted import plant_corpus
from training_processes import fit_in_processes
from visterm.core.errors import UserError
from visterm.core.tables import MODELS
from visterm.models.abilities import FitsTogether
from visterm.models.deep.data_parallel import ALONE, part_of
from visterm.models.deep.network import DeepNetwork, shared_norm
from visterm.models.deep.word_table import WordTable

SMALL = {"hidden": [20, 12], "epochs": 4, "batch_size": 40, "learning_rate": 0.005, "device": "cpu", "n_jobs": 1}
WORDS = (np.random.default_rng(0).standard_normal((12, 10)) * 5).astype(np.float32).tolist()
# 168 images of 240 are learned from at first, in batches of 33 and 34: the parts of two processes differ by an image.
FULL = {**SMALL, "dropout": 0.3, "valid_share": 0.3, "background": "subset", "subset_size": 6}
NORMS = {**FULL, "batch_norm": True}
FEW_DRAWS = {"positives": 1, "negatives": 1}
CASES = {
    "sampled": {"model": "sampled_tagger", "params": FULL, "words": WORDS},
    "norms": {"model": "sampled_tagger", "params": NORMS, "words": WORDS},
    "again": {"model": "sampled_tagger", "params": NORMS, "words": WORDS},
    "a row a draw": {"model": "sampled_tagger", "params": {**SMALL, "dim": 8, **FEW_DRAWS}, "tags": 40},
    "by valid": {"model": "sampled_tagger", "params": {**SMALL, "max_gradient": 0.5}, "valid": True},
    "all tags": {"model": "cross_entropy_tagger", "params": {**SMALL, "dim": 8}},
    "ranks": {"model": "fast0tag", "params": {**SMALL, "fixed_vectors": False, "all_pairs": False}, "words": WORDS},
    "means": {"model": "average_word_vector", "params": SMALL, "words": WORDS},
    "no seed": {"model": "sampled_tagger", "params": {**SMALL, "dim": 8, "random_state": None}},
}


@pytest.fixture(scope="module")
def together(tmp_path_factory):
    folder = tmp_path_factory.mktemp("together")
    kept = {"checkpoint": str(folder / "state"), "checkpoint_batches": 4}
    killed = {**CASES["norms"], "params": {**NORMS, **kept}, "killed_after": 13}
    few = {"model": "sampled_tagger", "params": {**SMALL, "batch_size": 1, "epochs": 1}}
    return fit_in_processes(folder, {**CASES, "killed": killed, "too few": few})


def fit_alone(case):
    planted = plant_corpus(n_tags=case.get("tags", 12), random_state=3)
    params = dict(case["params"])
    if "words" in case:
        params["word_vectors"] = np.array(case["words"], np.float32)
    valid = (planted.X_test, planted.Y_test) if case.get("valid") else None
    return MODELS.create(case["model"], **params).fit(planted.X_train, planted.Y_train, valid=valid)


@pytest.mark.parametrize("name", ["sampled", "norms", "a row a draw", "by valid", "all tags", "ranks", "means"])
def test_two_processes_learn_the_weights_of_one_but_for_rounding(name, together):
    model = fit_alone(CASES[name])
    arrays = together[name]["arrays"][0]
    assert "tag_rows_" in arrays
    if name == "norms":  # offsets before a norm have no gradient but rounding, which Adam makes steps of
        arrays = {key: array for key, array in arrays.items() if "weights" in key or "tag_rows" in key}
    for key, array in arrays.items():
        expected = getattr(model, key) if key.endswith("_") else getattr(model._held_out, key.removeprefix("held_"))
        np.testing.assert_allclose(array, expected, rtol=1e-4, atol=1e-4, err_msg=key)
    told = [(entry["epoch"], entry["loss"], entry["map"] or 0) for entry in together[name]["told"]]
    expected = [(entry["epoch"], entry["loss"], entry["map"] or 0) for entry in model.history_]
    np.testing.assert_allclose(told, expected, rtol=1e-2 if name == "norms" else 1e-3)


@pytest.mark.parametrize("name", [*CASES, "killed"])
def test_all_processes_have_the_same_bytes(name, together):
    first, second = together[name]["arrays"]
    assert first.keys() == second.keys()
    for key, array in first.items():
        np.testing.assert_array_equal(array, second[key], err_msg=key)


@pytest.mark.parametrize("name", ["again", "killed"])
def test_the_same_seed_gives_the_same_bytes_again_after_a_kill_too(name, together):
    expected = together["norms"]["arrays"][0]
    for key, array in together[name]["arrays"][0].items():
        np.testing.assert_array_equal(array, expected[key], err_msg=key)


def test_more_workers_than_images_in_a_batch_are_refused(together):
    assert together["too few"]["told"] == (
        "A batch has 1 images (batch_size 1), too few for 2 workers to take a part each. "
        "Take a larger batch_size, or fewer workers."
    )


@pytest.mark.parametrize(("n", "size"), [(7, 1), (7, 2), (7, 3), (2, 3), (0, 2)])
def test_parts_follow_each_other_and_differ_by_an_image_at_most(n, size):
    parts = [part_of(n, rank, size) for rank in range(size)]
    taken = [image for part in parts for image in range(n)[part.rows]]
    assert taken == list(range(n))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
    with pytest.raises(UserError, match="size is 0"):
        part_of(3, 0, 0)


def test_deep_taggers_can_be_fitted_together_and_others_not():
    able = {entry.name for entry in MODELS if isinstance(MODELS.create(entry.name), FitsTogether)}
    assert {"sampled_tagger", "cross_entropy_tagger", "fast0tag"} <= able
    assert not able & {"wsabie", "ridge", "knn"}


# -- two processes in one: what each would be sent is known -----------------------------------------------------------


class Company:
    """A process that is sent what a test says."""

    def __init__(self, rank, size, sums=(), rows=None):
        self.rank, self.size, self._sums, self._rows = rank, size, list(sums), rows
        self.sent = 0

    def total(self, values):
        return values + self._sums.pop(0)

    def gathered(self, rows, n):
        self.sent += rows.numel()
        return torch.cat([rows, self._rows] if self.rank == 0 else [self._rows, rows])


def test_dropout_leaves_out_in_parts_what_it_leaves_out_in_the_whole():
    settings = {"dropout": 0.5, "batch_norm": False, "scale": 1.0}
    network = DeepNetwork([4, 9, 3], **settings, rng=np.random.default_rng(0))
    x = torch.from_numpy(np.random.default_rng(1).standard_normal((7, 4)).astype(np.float32))
    whole = network(x, torch.Generator().manual_seed(5))
    parts = [part_of(7, rank, 2) for rank in range(2)]
    found = [network(x[part.rows], torch.Generator().manual_seed(5), part) for part in parts]
    torch.testing.assert_close(torch.cat(found), whole)


def test_a_norm_of_parts_is_that_of_the_whole_batch():
    x = torch.from_numpy(np.random.default_rng(1).standard_normal((7, 3)).astype(np.float32)) * 3 + 1
    norm, expected = torch.nn.BatchNorm1d(3), torch.nn.BatchNorm1d(3)
    other = x[3:]
    mean = x.mean(0)
    company = Company(0, 2, [other.sum(0), (other - mean).square().sum(0)])
    torch.testing.assert_close(shared_norm(norm, x[:3], 7, company), expected(x)[:3])
    for name, value in expected.state_dict().items():
        torch.testing.assert_close(norm.state_dict()[name], value)
    assert shared_norm(norm.eval(), x[:3], 7, company).shape == (3, 3)  # asks nobody


def test_what_is_sent_of_words_grows_with_the_draws_and_not_with_the_table():
    # Image 0 drew tags 4 and 1, image 1 drew 4 and 2: each process has one image, weighed double as half of the batch.
    tags = np.array([[4, 1], [4, 2]])
    gradients = torch.tensor([[[3.0, 4.0], [0.0, 2.0]], [[3.0, -4.0], [1.0, 1.0]]])
    sent = []
    for n_tags in (6, 600):
        tables = [WordTable(np.zeros((n_tags, 2), np.float32), moving=True, device=torch.device("cpu")) for _ in "12"]
        for rank, table in enumerate(tables):
            part, company = part_of(2, rank, 2), Company(rank, 2, rows=2 * gradients[1 - rank : 2 - rank])
            rows = table.take(tags, part)
            (rows.view(1, 2, 2) * 2 * gradients[part.rows]).sum().backward()
            table.meet(company, 2)
            assert torch.nn.utils.get_total_norm([leaf.grad for leaf in table.lent()]) == gradients.norm()
            table.step(0.1)
            sent.append(company.sent)
        alone = WordTable(np.zeros((n_tags, 2), np.float32), moving=True, device=torch.device("cpu"))
        (alone.take(tags).view(2, 2, 2) * gradients).sum().backward()
        alone.meet(ALONE, 2)
        alone.step(0.1)
        for table in tables:
            np.testing.assert_array_equal(table.rows, alone.rows)
            np.testing.assert_array_equal(table.sums, alone.sums)
    assert sent == [4, 4, 4, 4]
