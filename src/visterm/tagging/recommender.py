"""Recommend items to users, from pairs of users and items: users are images known by number, and items are tags."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property, partial
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, Self, Unpack

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from visterm.core.checks import as_csr, as_rows, check_choice, check_count, identity_rows
from visterm.core.errors import ShapeError, StorageError, UserError
from visterm.core.estimator import Estimator, check_fitted
from visterm.core.products import all_products
from visterm.core.progress import SILENT, Progress
from visterm.core.tables import MODELS
from visterm.core.types import Matrix, Place
from visterm.core.vocabulary import Vocabulary
from visterm.core.writing import whole_file
from visterm.data.frames import Framed
from visterm.data.pairs import Names, PairColumns, Pairs, PairSource, as_names, positions_of
from visterm.data.tag_queries import hold_one_out
from visterm.encoders.by_name import Ids
from visterm.features.training_rows import TrainingRows
from visterm.kernels.topk import top_k
from visterm.learning.fitting import learned_of
from visterm.learning.learned import Learned
from visterm.learning.part_settings import make_model
from visterm.learning.run import Run
from visterm.learning.validation import learn_by_number
from visterm.metrics.report import evaluate
from visterm.models.abilities import AddsTags, FoldsIn
from visterm.models.base import Annotator, SideKnowledge, row_blocks
from visterm.models.blend.kept import tag_vectors
from visterm.models.blend.stacked import folded_rows
from visterm.models.neighbours.knn import unit_rows

BY_NUMBER_ONLY = ("auto", "ease", "knn", "als", "prior")  # Models to which users with features would not be numbers


class _Recommendations(NamedTuple):
    users: NDArray[np.generic]
    """Names of the users, shape (n_users,)."""
    items: NDArray[np.generic]
    """Names of the items, shape (n_users, k), best first."""
    scores: NDArray[np.float32]
    """Scores, shape (n_users, k); -inf where a user has fewer than k items left: the item there is not recommended."""


class Recommendations(Framed, _Recommendations):
    """The best items of some users; as a DataFrame, it has the columns ``user``, ``rank``, ``item`` and ``score``."""

    __slots__ = ()

    def columns(self) -> dict[str, NDArray[np.generic]]:
        """Return the columns of the frame: an entry for each recommended item, user by user, best first."""
        entries = rows, ranks = np.nonzero(self.scores > -np.inf)
        return {"user": self.users[rows], "rank": ranks + 1, "item": self.items[entries], "score": self.scores[entries]}


@dataclass(kw_only=True, eq=False, repr=False)
class Recommender(Estimator):
    """Learns from pairs of users and items, and recommends items.

    It is a scikit-learn estimator: pass a sparse matrix (users × items) as `X` to `cross_val_score` or `GridSearchCV`.
    They split the users, and `score` folds in those held out.

    Parameters
    ----------
    model : str or Annotator
        A name from ``visterm models``, or an unfitted model: ``auto`` (the best blend), ``ease``, ``wsabie``,
        ``vse_ens``, ``knn`` (over items), ``als``, ``prior``.
    model_params : dict, optional
        Settings of the model.
    random_state : int
    n_jobs : int, optional
        Number of threads; None: all cores.

    Attributes
    ----------
    users_, items_ : ndarray
        Names of the users and of the items.
    pairs_ : Pairs
        The pairs that it learned from.
    model_ : Annotator
        The model, fitted.
    run_ : Run
        The run, which ``visterm annotate`` and ``visterm evaluate`` can use when it is saved.
    """

    model: str | Annotator = "auto"
    model_params: Mapping[str, object] | None = None
    random_state: int = 0
    n_jobs: int | None = None

    def fit(
        self,
        X: PairSource,
        y: object = None,
        *,
        user_features: ArrayLike | sp.sparray | None = None,
        item_features: ArrayLike | sp.sparray | None = None,
        progress: Progress | None = None,
    ) -> Self:
        """Learn from pairs, or a sparse matrix of them; `y` is not used. See `fit_pairs` for parameters and errors."""
        pairs, options = Pairs.of(X), {"random_state": self.random_state, "n_jobs": self.n_jobs}
        model = make_model(self.model, self.model_params or {}, options)
        weights = pairs.weights
        if item_features is not None:  # a feature is a further user, who has the items with this feature
            features = _features(item_features, "item_features", pairs.item_columns)
            if (least := features.data.min(initial=0)) < 0:
                raise UserError(setting="item_features", value=least, expected="numbers of 0 or more")
            weights = as_csr(sp.vstack([weights, features.T]))
        rows = identity_rows(weights.shape[0])
        if user_features is not None:
            features = _features(user_features, "user_features", pairs.user_rows)
            features.resize(weights.shape[0], features.shape[1])
            rows = sp.csr_array(sp.hstack([rows, features], format="csr"), dtype=np.float32)
        has_weights = pairs.has_weights or (item_features is not None and bool((weights.data != 1).any()))
        if has_weights and not model.uses_pair_weights:
            others = "auto, ease, knn, als, wsabie or vse_ens (`matrix > 0` has no weights)"
            raise _unused(model, "weight", others)
        if user_features is not None and MODELS.name_of(model) in BY_NUMBER_ONLY:
            raise _unused(model, "user_features", "wsabie or vse_ens")

        given = as_csr(weights > 0) if has_weights else weights
        side = SideKnowledge(pair_weights=weights if has_weights else None)
        training = TrainingRows(Vocabulary([]), rows, given, None, [], user_features is None, side=side)
        if training.by_number:
            model = learn_by_number(model, training, progress or SILENT)
        else:
            model.fit(rows, given, side=side, monitor=progress)
        self._set(model, pairs, rows, training)
        return self

    @cached_property
    def run_(self) -> Run:
        """The run; made at first use, as the names and hashes of all users take longer than some fits."""
        training = self._fit_rows("have a run")
        encoder, names = Ids(), list(map(str, self.users_.tolist()))
        encoder.fit([*names, *(f"feature {row}" for row in range(self._rows.shape[0] - len(names)))])
        training = training._replace(vocabulary=self.pairs_.vocabulary(), names=encoder.names_)
        return Run.of_parts(learned_of(Learned(encoder=encoder, model=self.model_), training))

    def recommend(
        self, users: Names = None, k: int = 10, *, exclude_seen: bool = True, among: Names = None
    ) -> Recommendations:
        """Return the best items of users; for many users, `write` needs less memory.

        Parameters
        ----------
        users : sequence, optional
            Names of users; None: all.
        k : int
            Number of items per user.
        exclude_seen : bool
            Whether to leave out the items of each user's pairs.
        among : sequence, optional
            Names of the only items to recommend; None: all.

        Raises UserError if a user or an item is unknown.
        """
        return _joined(self._recommend_blocks(users, k, exclude_seen=exclude_seen, among=among))

    def write(
        self, path: Place, users: Names = None, k: int = 10, *, exclude_seen: bool = True, among: Names = None
    ) -> None:
        """Write recommendations as JSON lines or Parquet (``.jsonl``, ``.parquet``); memory doesn't grow with users.

        Options are those of `recommend`. The file is replaced when all is written. Raises MissingExtraError if
        Parquet needs pyarrow (extra ``parquet``).
        """
        file = Path(path)
        check_choice(file.suffix, "path", (".jsonl", ".parquet"))
        blocks = self._recommend_blocks(users, k, exclude_seen=exclude_seen, among=among)
        with whole_file(file) as part, ExitStack() as opened:
            writer: Any = None
            for block in blocks:
                if file.suffix == ".jsonl":
                    writer = writer or opened.enter_context(part.open("w", encoding="utf-8"))
                    writer.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in block.rows())
                else:
                    rows = block.to_frame("pyarrow")
                    parquet = import_module("pyarrow.parquet")
                    writer = writer or opened.enter_context(parquet.ParquetWriter(part, rows.schema))
                    writer.write_table(rows)

    def similar_items(self, items: Names = None, k: int = 10) -> Recommendations:
        """Return the items most similar to items (None: all), which are the `users` of the result.

        By the weights between items, if the model or a member of a blend has them (``ease``, ``knn``), or else by the
        cosine of the items' vectors. Raises UserError if an item is unknown, or the model has neither.
        """
        check_fitted(self)
        wanted = positions_of(items, self.pairs_, "item")
        ones = identity_rows(self.items_.size)
        members = self.model_, *getattr(self.model_, "members_", ())
        able: list[Any] = [member for member in members if isinstance(member, FoldsIn)]
        for model in able:
            if sp.issparse(model.fold_in(ones[:1])):  # the item's weights, not a vector
                return _most_similar(model.fold_in(ones), model._tag_rows(), self.items_, wanted, k)
        vectors = tag_vectors(self.model_)
        if vectors is None or vectors.shape[1] < 2:
            raise UserError("This model has no vectors of items.", setting="model", advice="Choose ease or wsabie.")
        units = unit_rows(vectors)
        return _most_similar(units, units, self.items_, wanted, k)

    def similar_users(self, users: Names = None, k: int = 10) -> Recommendations:
        """Return the users nearest to users (None: all) by the cosine of their rows; `items` are users."""
        check_fitted(self)
        wanted = positions_of(users, self.pairs_, "user")
        units = unit_rows(self._user_rows(np.arange(self.users_.size)))
        return _most_similar(units, units, self.users_, wanted, k)

    def fold_in(self, pairs: PairSource, **columns: Unpack[PairColumns]) -> Recommender:
        """Return a recommender for new users, without a fit: their rows follow from their pairs (`folded_rows`).

        Parameters
        ----------
        pairs : DataFrame, path or sparse matrix
            Pairs of new users and known items. The columns of a matrix are the items, in the order of `items_`.
        **columns
            As in `fit_pairs`: `user`, `item`, `weight`, `users`.

        Raises UserError if an item is unknown, or the model cannot fold users in.
        """
        self._fit_rows("fold new users in")
        if sp.issparse(pairs):
            columns.setdefault("items", self.items_)
        new = Pairs.of(pairs, **columns)
        columns_of_items = identity_rows(self.items_.size)[positions_of(new.items, self.pairs_, "item")]
        weights = as_csr(new.weights @ columns_of_items)
        folded, rows = copy(self), folded_rows(self.model_, weights, self._rows, self.pairs_.weights)
        folded._set(self.model_, replace(new, items=self.items_, weights=weights, times=None), rows)
        return folded

    def add_items(self, pairs: PairSource, **columns: Unpack[PairColumns]) -> Self:
        """Add new items by their pairs with known users; the rows of the known items stay as they are.

        Raises UserError if an item is known already, a user is unknown, or the model cannot add items.
        """
        training = self._fit_rows("add items")
        new = Pairs.of(pairs, **columns)
        users = positions_of(new.users, self.pairs_, "user")
        if known := [name for name in new.items.astype(str).tolist() if name in self.pairs_.item_columns]:
            raise UserError(f"{known[0]!r} is an item already.", setting="pairs", advice="Fit again.")
        model = self.model_
        if not isinstance(model, AddsTags):
            name = MODELS.name_of(model)
            raise UserError(f"The model '{name}' cannot add items.", setting="model", value=name, advice="Fit again.")

        added = as_csr(identity_rows(model.n_features_in_)[users].T @ new.weights)
        model.add_tags(None, as_csr(added > 0))
        weights = as_csr(sp.hstack([self.pairs_.weights, added[: self.users_.size]]))
        items = np.concatenate([self.items_, new.items.astype(self.items_.dtype.kind)])
        pairs = replace(self.pairs_, items=items, weights=weights, times=None)
        self._set(model, pairs, self._rows, training._replace(Y=as_csr(weights > 0)))
        return self

    def score(self, X: PairSource, y: object = None) -> float:
        """Return the mean reciprocal rank of one hidden item of each user, whose other pairs are folded in."""
        hidden = hold_one_out(Pairs.of(X).weights, np.random.default_rng(0))
        scores = partial(self.fold_in(hidden.known).score_blocks, np.arange(hidden.images.size))
        return evaluate(scores, hidden.held, ["mrr"], exclude=hidden.known)["mrr"]

    def scores(self, users: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the scores of all items for users by their positions in `users_`, shape (n_users, n_items).

        Raises UserError for names.
        """
        if (positions := np.asarray(users)).dtype.kind not in "iu":
            expected = "positions in `users_`, such as 0; `recommend` takes names"
            raise UserError(setting="users", value=positions.ravel()[0], expected=expected)
        return self.model_._scores(self._user_rows(users))

    def score_blocks(self, users: NDArray[np.int64]) -> Iterator[tuple[slice, NDArray[np.float32]]]:
        """Yield slices of `users`, which are positions, and their `scores`: memory doesn't grow with the users."""
        return self.model_._score_rows(users.size, lambda rows: self._user_rows(users[rows]))

    def save(self, path: Place, *, overwrite: bool = False) -> None:
        """Save the run, which `load` opens again; weights of pairs are not saved.

        Raises StorageError if there is a run at `path` and `overwrite` is False; UserError with features or new users.
        """
        self._fit_rows("be saved")
        if self._rows.shape != (self.users_.size, self.users_.size):
            advice = "Leave `user_features` and `item_features` out."
            raise UserError("A recommender with features can't be saved.", setting="path", value=path, advice=advice)
        self.run_.save(path, overwrite=overwrite)

    @classmethod
    def load(cls, path: Place, n_jobs: int | None = None) -> Self:
        """Open a run of images known by number as a recommender. Raises StorageError if there is none at `path`."""
        run = Run.open(path, n_jobs, whole=True)
        if run.given is None or not isinstance(run.encoder, Ids):
            raise StorageError(f"{path} is a run of photos, not of pairs. Open it with Tagger.load.")
        users, items = (as_names(np.array(names)) for names in (run.encoder.names_, run.vocabulary.tags))
        recommender = cls(model=MODELS.name_of(run.model), n_jobs=n_jobs)
        training = TrainingRows(run.vocabulary, identity_rows(users.size), run.given, None, [], True)
        recommender._set(run.model, Pairs(users, items, as_csr(run.given > 0)), training.X, training)
        recommender.run_ = run
        return recommender

    def _recommend_blocks(
        self, users: Names, k: int, *, exclude_seen: bool = True, among: Names = None
    ) -> Iterator[Recommendations]:
        """Yield the best items of some users after another, as `recommend`."""
        check_fitted(self)
        wanted = positions_of(users, self.pairs_, "user")
        columns: Any = slice(None)
        if among is not None:
            columns = np.unique(positions_of(among, self.pairs_, "item"))
        blocks = ((wanted[rows], scores) for rows, scores in self.score_blocks(wanted))
        return _best(blocks, self.users_, self.items_, k, self.pairs_.weights if exclude_seen else None, columns)

    def _fit_rows(self, what: str) -> TrainingRows:
        """Return the rows of the fit; raise UserError if the users are new ones, which were folded in."""
        check_fitted(self)
        if self._training is None:
            advice = "Use the recommender that `fit_pairs` returned."
            raise UserError(f"A recommender of new users can't {what}.", advice=advice)
        return self._training

    def _set(self, model: Annotator, pairs: Pairs, rows: Matrix, training: TrainingRows | None = None) -> None:
        """Set what was learned, and the users' feature rows; without `training`, their rows in the model's space."""
        self.model_, self.pairs_, self.users_, self.items_ = model, pairs, pairs.users, pairs.items
        self._rows, self._training = rows, training
        vars(self).pop("run_", None)

    def _user_rows(self, users: NDArray[np.int64]) -> Matrix:
        """Return the rows of users, by their positions, in the model's space."""
        rows: Any = self._rows[users]
        return rows if self._training is None else self.model_.image_rows(rows)


def fit_pairs(
    pairs: PairSource,
    *,
    user: str = "user",
    item: str = "item",
    weight: str | None = None,
    time: str | None = None,
    users: ArrayLike | None = None,
    items: ArrayLike | None = None,
    model: str | Annotator = "auto",
    model_params: Mapping[str, object] | None = None,
    user_features: ArrayLike | sp.sparray | None = None,
    item_features: ArrayLike | sp.sparray | None = None,
    random_state: int = 0,
    n_jobs: int | None = None,
    progress: Progress | None = None,
) -> Recommender:
    """Learn from pairs of users and items, to recommend items; like ``visterm fit --pairs``.

    Parameters
    ----------
    pairs : DataFrame, list of dicts, dict of columns, path, or sparse matrix of shape (n_users, n_items)
        Each pair counts once: repeated pairs are one, with the sum of their weights. Values of a matrix above 0 are
        weights, if they aren't all 1.
    user, item : str
        Columns of the frame or file.
    weight : str, optional
        Column of weights, numbers above 0. ``ease`` and ``knn`` use them as values of the matrix, ``als`` as
        confidences, ``wsabie`` and ``vse_ens`` to draw pairs, and ``auto`` in all of its models; other models raise an
        error.
    time : str, optional
        Column of times, numbers, dates or ISO 8601 texts, for temporal splits (`evaluate_pairs`).
    users, items : array-like, optional
        Names of the rows and columns of a sparse matrix; None: their numbers.
    model, model_params, random_state, n_jobs
        As in `Recommender`.
    user_features : array, sparse or pandas frame, shape (n_users, n_features), optional
        Features of the users, in the order of `Pairs.users` or with their names as the frame's index, for ``wsabie``
        and ``vse_ens``: the vector of a user is the sum of its own and those of its features. Others raise an error.
    item_features : array, sparse or pandas frame, shape (n_items, n_features), optional
        Features of the items, 0 or above, in the order of `Pairs.items` or with their names as the frame's index. Each
        is learned as one more user who has the items with this feature. Values other than 1 are weights.
    progress : Progress, optional

    Raises DataError if pairs can't be read (`Pairs.of`); UserError if the model is unknown, or doesn't use weights or
    features.

    Examples
    --------
    >>> recommender = visterm.fit_pairs(frame, user="user_id", item="movie_id")  # doctest: +SKIP
    >>> recommender.recommend(["ann", "bob"], k=10).to_pandas()  # doctest: +SKIP
    """
    read = Pairs.of(pairs, user=user, item=item, weight=weight, time=time, users=users, items=items)
    recommender = Recommender(model=model, model_params=model_params, random_state=random_state, n_jobs=n_jobs)
    return recommender.fit(read, user_features=user_features, item_features=item_features, progress=progress)


def _features(matrix: Any, setting: str, names: Collection[str]) -> sp.csr_array:
    """Return features of users or items as CSR, with a row for each name: in their order, or by the index of a frame.

    Raises ShapeError if there are too few or too many rows; UserError if a name is not once in the index.
    """
    index: Any = getattr(matrix, "index", None)
    if hasattr(index, "is_unique") and not hasattr(index, "step"):  # names, not the numbers of the rows
        counts, rows = Counter(map(str, index)), dict(zip(map(str, index), range(len(index)), strict=True))
        if wrong := [name for name in names if counts[name] != 1]:
            raise UserError(setting=setting, value=wrong[0], expected="each name once in the index of the frame")
        matrix = matrix.iloc[[rows[name] for name in names]]
    features = sp.csr_array(as_rows(matrix, setting))
    if features.shape[0] != len(names):
        raise ShapeError(setting=setting, value=features.shape, expected=f"{len(names):,} rows")
    return features


def _unused(model: Annotator, setting: str, others: str) -> UserError:
    """Return the error for a setting that a model doesn't use, with the `others` that do."""
    problem = f"The model '{MODELS.name_of(model)}' doesn't use `{setting}`."
    return UserError(problem, setting=setting, advice=f"Leave it out, or choose another `model`: {others}.")


def _most_similar(U: Any, V: Any, names: NDArray[Any], wanted: NDArray[np.int64], k: int) -> Recommendations:
    """Return the `k` others with the highest scores, U · Vᵀ, for each wanted row of U."""
    blocks = ((wanted[rows], all_products(U[wanted[rows]], V)) for rows in row_blocks(wanted.size, 4 * names.size))
    return _joined(_best(blocks, names, names, min(k, names.size - 1), identity_rows(names.size)))


def _best(
    blocks: Iterable[tuple[NDArray[np.int64], NDArray[np.float32]]],
    users: NDArray[Any],
    items: NDArray[Any],
    k: int,
    excluded: sp.csr_array | None,
    columns: Any = slice(None),
) -> Iterator[Recommendations]:
    """Yield the `k` items among `columns` with the highest scores for the users of each block, which are positions."""
    check_count(k, "k")
    items = items[columns]
    for block, scores in blocks:
        if excluded is not None:
            scores[excluded[block].tocoo().coords] = -np.inf
        ids, best = top_k(np.ascontiguousarray(scores[:, columns]), min(k, items.size))
        yield Recommendations(users[block], items[ids], best)


def _joined(blocks: Iterable[Recommendations]) -> Recommendations:
    return Recommendations(*map(np.concatenate, zip(*blocks, strict=True)))
