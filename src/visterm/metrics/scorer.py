"""Metrics of annotation for scikit-learn's `scoring=`: in GridSearchCV, cross_val_score and cross_validate."""

from __future__ import annotations

from typing import Any

from visterm.core.errors import UserError
from visterm.metrics.ranking import as_matrix
from visterm.metrics.report import evaluate
from visterm.metrics.table import check_metrics


class scorer:  # noqa: N801, called as a function
    """A metric of ``visterm metrics`` as scikit-learn's `scoring=` takes it.

    It may be called, too: ``scorer("p@5")(estimator, X, Y)``. The estimator is a tagger, a model, a pipeline that ends
    in one, or any other with a `decision_function` that has a column for each tag.

    Parameters
    ----------
    metric : str
        A name from ``visterm metrics``, with ``@k`` where it takes one.

    Examples
    --------
    >>> from sklearn.model_selection import cross_val_score
    >>> cross_val_score(model, X, tags, scoring=visterm.scorer("p@5"))  # doctest: +SKIP
    """

    def __init__(self, metric: str = "map") -> None:
        [self.metric] = check_metrics(metric, siblings=False, tree=False)

    def __call__(self, estimator: Any, X: Any, y: Any = None, **_: Any) -> float:
        """Return the metric of an estimator on images whose tags are known, as scikit-learn calls it.

        `X` and `y` are as its `score` takes them; `y` is a matrix (n_images, n_tags) or lists of tags. Raises UserError
        if the estimator has no scores of tags, or `y` has words and it was fitted on a matrix; DataError if there is
        nothing to measure on.
        """
        judged = getattr(estimator, "judged", None)
        if judged is not None:
            scores, Y, exclude = judged(X, y)
            return evaluate(scores, Y, self.metric, exclude=exclude)[self.metric]
        if not hasattr(estimator, "decision_function"):
            raise UserError(
                f"A {type(estimator).__name__} has no scores of tags. {self!r} measures taggers, models of visterm, "
                "and pipelines that end in one."
            )
        return evaluate(estimator.decision_function(X), as_matrix(y, estimator), self.metric)[self.metric]

    def __repr__(self) -> str:
        return f"scorer({self.metric!r})"
