"""The costs of deep taggers are the paper's sums, and their gradients those of the sums."""

# ruff: noqa: E402 (what follows the skip needs torch)
from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra 'torch' is not installed")

from reference import tag_costs as reference
from visterm.models.deep import objectives
from visterm.models.deep.objectives import DrawnProducts, RowPerDraw, RowPerWord

N_IMAGES, P, N, N_TAGS, DIM = 4, 3, 5, 7, 6


@pytest.fixture
def numbers():
    rng = np.random.default_rng(0)
    has = np.ones((N_IMAGES, P))
    has[0] = 0
    counts = (rng.random((N_IMAGES, N)) < 0.7).astype(float)
    counts[1] = 0
    return {
        "f": rng.standard_normal((N_IMAGES, DIM)),
        "v_p": rng.standard_normal((N_IMAGES, P, DIM)),
        "v_n": rng.standard_normal((N_IMAGES, N, DIM)),
        "has": has,
        "counts": counts,
        "pairs": (rng.random((N_IMAGES, P, P)) < 0.6).astype(float),
        "apart": (rng.random((N_IMAGES, P, N)) < 0.6).astype(float),
    }


SAMPLED = ("f", "v_p", "v_n", "has", "counts")
RELATED = ("v_p", "v_n", "pairs", "apart")

COSTS = [
    ("sampled_cross_entropy", SAMPLED, {}),
    ("related_tags", RELATED, {"alpha": 0.3, "printed": False}),
    ("related_tags", RELATED, {"alpha": 0.3, "printed": True}),
]
costs = pytest.mark.parametrize(("name", "takes", "params"), COSTS, ids=lambda value: str(value))


def by_ours(numbers, name, takes, params):
    """The cost as ours computes it, and the tensors that learn, by name."""
    tensors = {key: torch.from_numpy(numbers[key]) for key in takes}
    learning = {key: tensors[key].requires_grad_() for key in ("f", "v_p", "v_n") if key in takes}
    f = tensors.get("f", torch.zeros((N_IMAGES, DIM), dtype=torch.float64))
    rows = torch.cat([tensors["v_p"], tensors["v_n"]], dim=1)
    scores, products = DrawnProducts.apply(f, rows, P)
    drawn = scores if takes == SAMPLED else products
    masks = [tensors[key] for key in takes[-2:]]
    return getattr(objectives, name)(drawn[..., :P], drawn[..., P:], *masks, **params), learning


@costs
def test_a_cost_is_the_papers_sum(numbers, name, takes, params):
    found, _ = by_ours(numbers, name, takes, params)
    expected = getattr(reference, name)(*(numbers[key] for key in takes), **params)
    assert expected > 0 or params.get("printed")
    np.testing.assert_allclose(found.item(), expected, rtol=1e-10)


@costs
def test_a_gradient_is_that_of_the_sum_by_finite_differences(numbers, name, takes, params):
    cost, learning = by_ours(numbers, name, takes, params)
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
                values.append(getattr(reference, name)(*(moved[k] for k in takes), **params))
            np.testing.assert_allclose(gradient[place], (values[0] - values[1]) / (2 * step), rtol=1e-5, atol=1e-8)


def test_very_unlikely_tags_cost_what_they_cost_and_are_not_infinite():
    score, one = torch.tensor([[-1000.0]]), torch.ones((1, 1))
    assert objectives.sampled_cross_entropy(score, -score, one, one).item() == 2000


def test_the_products_of_drawn_rows_and_all_their_gradients_together_are_those_of_torch():
    rng = np.random.default_rng(0)
    tensors = [rng.standard_normal(shape) for shape in ((4, 6), (4, 5, 6), (4, 5), (4, 2, 5))]
    gradients = []
    for ours in (True, False):
        f, rows, of_scores, of_products = (torch.from_numpy(array.copy()) for array in tensors)
        f.requires_grad_()
        rows.requires_grad_()
        scores, products = (
            DrawnProducts.apply(f, rows, 2) if ours else ((rows @ f[:, :, None])[:, :, 0], rows[:, :2] @ rows.mT)
        )
        ((scores.square() * of_scores).sum() + (products.square() * of_products).sum()).backward()
        gradients.append((f.grad.numpy(), rows.grad.numpy()))
    for found, expected in zip(*gradients, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_a_row_a_word_gives_the_scores_the_products_and_the_gradients_of_a_row_a_draw():
    rng = np.random.default_rng(0)
    places = rng.integers(N_TAGS, size=(N_IMAGES, P + N))
    words, of_scores, of_products = (
        torch.from_numpy(rng.standard_normal(shape))
        for shape in ((N_TAGS, DIM), (N_IMAGES, P + N), (N_IMAGES, P, P + N))
    )
    vectors = torch.from_numpy(rng.standard_normal((N_IMAGES, DIM)))
    found = []
    for way in (lambda f, V: RowPerDraw(f, V[places]), lambda f, V: RowPerWord(f, V, torch.from_numpy(places))):
        f, V = vectors.clone().requires_grad_(), words.clone().requires_grad_()
        rows = way(f, V)
        scores, products = rows.scores_and_products(P)
        torch.testing.assert_close(rows.scores(), scores)
        ((scores.square() * of_scores).sum() + (products.square() * of_products).sum()).backward()
        found.append((scores.detach(), products.detach(), f.grad, V.grad))
    for a_word, a_draw in zip(*found, strict=True):
        torch.testing.assert_close(a_word, a_draw, rtol=1e-12, atol=1e-12)
