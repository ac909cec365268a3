"""The costs of all tags, of ranks and of one target are the papers' sums, and their gradients those of the sums."""

# ruff: noqa: E402 (what follows the skip needs torch)
from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra 'torch' is not installed")


from reference import tag_costs as reference
from visterm_research.models.deep import objectives

N_IMAGES, P, N, N_TAGS, DIM = 4, 3, 5, 7, 6


@pytest.fixture
def numbers():
    rng = np.random.default_rng(0)
    given = rng.random((N_IMAGES, N_TAGS)) < 0.4
    given[0], given[1] = False, True  # an image without tags, and one with all
    has = np.ones((N_IMAGES, P))
    has[0] = 0
    counts = (rng.random((N_IMAGES, N)) < 0.7).astype(float)
    counts[1] = 0
    return {
        "f": rng.standard_normal((N_IMAGES, DIM)),
        "v_p": rng.standard_normal((N_IMAGES, P, DIM)),
        "v_n": rng.standard_normal((N_IMAGES, N, DIM)),
        "V": rng.standard_normal((N_TAGS, DIM)),
        "has": has,
        "counts": counts,
        "given": given,
    }


SAMPLED = ("f", "v_p", "v_n", "has", "counts")
FULL = ("f", "V", "given")

COSTS = [("full_cross_entropy", FULL), ("sampled_rank_cost", SAMPLED), ("full_rank_cost", FULL)]
costs = pytest.mark.parametrize(("name", "takes"), COSTS, ids=lambda value: str(value))


def by_ours(numbers, name, takes):
    """The cost as ours computes it, and the tensors that learn, by name."""
    tensors = {key: torch.from_numpy(numbers[key]) for key in takes if key != "given"}
    learning = {key: tensors[key].requires_grad_() for key in ("f", "v_p", "v_n", "V") if key in takes}
    if takes == FULL:
        pairs = [torch.from_numpy(places) for places in np.nonzero(numbers["given"])]
        return getattr(objectives, name)(tensors["f"], tensors["V"], *pairs), learning
    scores = [(tensors[rows] @ tensors["f"][:, :, None])[:, :, 0] for rows in ("v_p", "v_n")]
    return getattr(objectives, name)(*scores, tensors["has"], tensors["counts"]), learning


@costs
def test_a_cost_is_the_papers_sum(numbers, name, takes):
    found, _ = by_ours(numbers, name, takes)
    expected = getattr(reference, name)(*(numbers[key] for key in takes))
    assert expected > 0
    np.testing.assert_allclose(found.item(), expected, rtol=1e-10)


@costs
def test_a_gradient_is_that_of_the_sum_by_finite_differences(numbers, name, takes):
    cost, learning = by_ours(numbers, name, takes)
    cost.backward()
    step = 1e-6
    for key, tensor in learning.items():
        gradient = tensor.grad.numpy()
        assert np.abs(gradient).max() > 1e-3
        for place in list(np.ndindex(gradient.shape))[::5]:
            values = []
            for sign in (1, -1):
                moved = {**numbers, key: numbers[key].copy()}
                moved[key][place] += sign * step
                values.append(getattr(reference, name)(*(moved[k] for k in takes)))
            np.testing.assert_allclose(gradient[place], (values[0] - values[1]) / (2 * step), rtol=1e-5, atol=1e-8)


def test_the_squared_distance_is_half_the_mean_over_images():
    f = torch.tensor([[1.0, 2.0], [0.0, 0.0]], requires_grad=True)
    cost = objectives.squared_distance(f, torch.tensor([[0.0, 0.0], [0.0, 3.0]]))
    assert cost.item() == (1 + 4 + 9) / 2 / 2
    cost.backward()
    assert f.grad.tolist() == [[0.5, 1.0], [0.0, -1.5]]


def test_very_unlikely_tags_cost_what_they_cost_and_are_not_infinite():
    score, one = torch.tensor([[-1000.0]]), torch.ones((1, 1))
    assert objectives.sampled_rank_cost(score, -score, one, one).item() == 2000
