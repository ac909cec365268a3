"""Recommend items to users, from pairs of users and items: users are images known by number, and items are tags."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from visterm.core.checks import as_csr, as_rows, check_choice, check_count, identity_rows
from visterm.core.errors import MissingExtraError, StorageError, UserError
from visterm.core.estimator import Estimator, check_fitted, clone
from visterm.core.products import dense, transposed_for
from visterm.core.progress import SILENT, Progress
from visterm.core.tables import MODELS
from visterm.core.types import Matrix
from visterm.core.vocabulary import Vocabulary
from visterm.core.writing import whole_file
from visterm.data.frames import Framed
from visterm.data.pairs import Pairs, PairSource, positions_of
from visterm.data.tag_queries import hold_one_out
from visterm.encoders.ids import Ids
from visterm.features.training_rows import TrainingRows
from visterm.kernels.topk import top_k
from visterm.learning.fitting import learned_of
from visterm.learning.learned import Learned
from visterm.learning.part_settings import make_model
from visterm.learning.run import Run
from visterm.learning.validation import learn_by_number
from visterm.metrics.report import measure
from visterm.models.abilities import AddsTags, FoldsIn
from visterm.models.base import Annotator, SideKnowledge
from visterm.models.blend.kept import tag_vectors
from visterm.models.fold_in import folded_rows
from visterm.models.neighbours.knn import unit_rows

BLOCK_SCORES = 2**23  # Number of scores in memory at a time
NAME_KINDS = "names that are numbers"  # Fact of the run: "users", "items" or both
TABLE_SUFFIXES = (".jsonl", ".parquet")


class _Recommendations(NamedTuple):
    users: NDArray[Any]
    """Names of the users, shape (n_users,)."""
    items: NDArray[Any]
    """Names of the items, shape (n_users, k), best first."""
    scores: NDArray[np.float32]
    """Scores, shape (n_users, k); -inf where a user has fewer than k items left: the item there is not recommended."""


class Recommendations(Framed, _Recommendations):
    """The best items of some users; as a DataFrame, it has the columns ``user``, ``rank``, ``item`` and ``score``."""

    __slots__ = ()

    def rows(self) -> list[dict[str, object]]:
        """Return a row for each item of a user, best first."""
        rankings = zip(self.users.tolist(), self.items.tolist(), self.scores.tolist(), strict=True)
        return [
            {"user": user, "rank": rank, "item": item, "score": score}
            for user, items, scores in rankings
            for rank, (item, score) in enumerate(zip(items, scores, strict=True), 1)
            if score > -np.inf
        ]


@dataclass(kw_only=True, eq=False, repr=False)
class Recommender(Estimator):
    """Learns from pairs of users and items, and recommends items.

    It is a scikit-learn estimator: pass a sparse matrix (users × items) as `X` to `cross_val_score` or `GridSearchCV`.
    Their folds are of users, which `score` folds in.

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
    run_ : Run
        The run; ``visterm annotate`` and ``visterm evaluate`` can use it when it is saved.
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
        progress: Progress = SILENT,
    ) -> Self:
        """Learn from pairs.

        Parameters
        ----------
        X : Pairs, DataFrame, path or sparse matrix
            As in `fit_pairs`.
        y : object
            Not used.
        user_features : array or sparse, shape (n_users, n_features), optional
            Features of the users in the order of `Pairs.users`. The row of a user has the user's number and these.
        progress : Progress

        Raises
        ------
        UserError
            If the model doesn't use weights or these features.
        """
        pairs, model = Pairs.of(X), self._new_model()
        _check_uses(model, pairs, user_features)
        rows = identity_rows(pairs.users.size)
        if user_features is not None:
            features = sp.csr_array(as_rows(user_features, "user_features"))
            rows = sp.csr_array(sp.hstack([rows, features], format="csr"), dtype=np.float32)

        given = as_csr(pairs.weights > 0)
        side = SideKnowledge(pair_weights=pairs.weights if pairs.has_weights else None)
        vocabulary = Vocabulary(
            pairs.items.astype(str).tolist(), np.bincount(given.indices, minlength=pairs.items.size)
        )  # fmt: skip
        encoder = Ids()
        encoder.fit(pairs.users.tolist())
        training = TrainingRows(vocabulary, rows, given, None, [], user_features is None, encoder.names_, side)
        if training.by_number:
            model = learn_by_number(model, training, progress)
        else:
            model.fit(rows, given, side=side, monitor=progress)
        learned = learned_of(Learned(encoder=encoder, model=model), training)
        named = ("users", pairs.users), ("items", pairs.items)
        facts = {NAME_KINDS: " and ".join(kind for kind, names in named if names.dtype.kind in "iu") or "none"}
        self._set(Run.of_parts(learned.changed(facts={**learned.facts, **facts})), pairs, rows)
        return self

    def recommend(
        self,
        users: Sequence[Any] | None = None,
        k: int = 10,
        *,
        exclude_seen: bool = True,
        among: Sequence[Any] | None = None,
        progress: Progress = SILENT,
    ) -> Recommendations:
        """Return the best items of users; `recommend_each` needs less memory for many users.

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
        progress : Progress
            Advances by one step per user.

        Raises
        ------
        UserError
            If a user or an item is unknown.
        """
        parts = list(self.recommend_each(users, k, exclude_seen=exclude_seen, among=among, progress=progress))
        return Recommendations(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))

    def recommend_each(
        self,
        users: Sequence[Any] | None = None,
        k: int = 10,
        *,
        exclude_seen: bool = True,
        among: Sequence[Any] | None = None,
        progress: Progress = SILENT,
    ) -> Iterator[Recommendations]:
        """Yield the best items of some users after another, as `recommend`; memory doesn't grow with the users."""
        check_fitted(self)
        check_count(k, "k")
        wanted = np.arange(self.users_.size) if users is None else positions_of(users, self.users_, "user")
        columns = None if among is None else np.unique(positions_of(among, self.items_, "item"))
        n_items = self.items_.size if columns is None else columns.size
        progress.start("recommend items", wanted.size)
        for rows, scores in self.score_blocks(wanted):
            block = wanted[rows]
            if exclude_seen:
                seen = self.pairs_.weights[block]
                scores[np.repeat(np.arange(block.size), np.diff(seen.indptr)), seen.indices] = -np.inf
            ids, best = top_k(scores if columns is None else scores[:, columns], min(k, n_items))
            yield Recommendations(self.users_[block], self.items_[ids if columns is None else columns[ids]], best)
            progress.advance(block.size)
        progress.finish()

    def write(
        self, path: str | os.PathLike[str], users: Sequence[Any] | None = None, k: int = 10, **options: Any
    ) -> int:
        """Write recommendations as JSON lines or Parquet (``.jsonl``, ``.parquet``); return the number of users.

        `options` are those of `recommend_each`. The file is replaced when all is written. Raises MissingExtraError if
        Parquet needs pyarrow (extra ``parquet``).
        """
        file, n_users = Path(path), 0
        check_choice(file.suffix, "path", TABLE_SUFFIXES)
        blocks = self.recommend_each(users, k, **options)
        with whole_file(file) as part:
            if file.suffix == ".parquet":
                return _write_parquet(part, blocks)
            with part.open("w", encoding="utf-8") as lines:
                for block in blocks:
                    n_users += block.users.size
                    lines.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in block.rows())
        return n_users

    def similar_items(self, items: Sequence[Any] | None = None, k: int = 10) -> Recommendations:
        """Return the items most similar to items (None: all), which are the `users` of the result.

        By the weights between items, if the model or a member of a blend has them (``ease``, ``knn``), or else by the
        cosine of the items' vectors. Raises UserError if an item is unknown, or the model has neither.
        """
        check_fitted(self)
        members = [self.run_.model, *getattr(self.run_.model, "members_", [])]
        if (by_weights := next((member for member in members if isinstance(member, FoldsIn)), None)) is not None:
            return _most_similar(by_weights, self.items_, items, k)
        vectors = tag_vectors(self.run_.model)
        if vectors is None:
            vectors = self.run_.model.query_rows(sp.eye_array(self.items_.size, format="csr", dtype=np.float32))
        if vectors.shape[1] < 2:
            raise UserError("This model has no vectors of items.", setting="model", advice="Choose ease or wsabie.")
        return _nearest(vectors, self.items_, items, k, "item")

    def similar_users(self, users: Sequence[Any] | None = None, k: int = 10) -> Recommendations:
        """Return the users nearest to users (None: all) by the cosine of their rows; `items` are users."""
        check_fitted(self)
        return _nearest(self._image_rows(np.arange(self.users_.size)), self.users_, users, k, "user")

    def fold_in(self, pairs: PairSource, **columns: Any) -> Recommender:
        """Return a recommender for new users, without a fit: their rows follow from their pairs.

        ``ease`` and ``knn`` multiply the row of pairs with their weights of items; for an embedding, the row is
        linear in the mean of the items' vectors, by least squares on the users of the fit (`folded_rows`).

        Parameters
        ----------
        pairs : DataFrame, path or sparse matrix
            Pairs of new users and known items. The columns of a matrix are the items, in the order of `items_`.
        **columns
            As in `fit_pairs`: `user`, `item`, `weight`, `users`.

        Raises
        ------
        UserError
            If an item is unknown, or the model cannot fold users in.
        """
        check_fitted(self)
        if sp.issparse(pairs):
            columns = {"items": self.items_, **columns}
        new = Pairs.of(pairs, **columns)
        positions = positions_of(new.items, self.items_, "item")
        shape = new.users.size, self.items_.size
        entries = new.weights.tocoo()
        weights = sp.csr_array((entries.data, (entries.row, positions[entries.col])), shape=shape)
        rows = folded_rows(self.run_.model, weights, self.pairs_.weights)
        folded = clone(self)
        folded._set(self.run_, Pairs(new.users, self.items_, weights, None, new.has_weights), rows, are_folded=True)
        return folded

    def add_items(self, pairs: PairSource, **columns: Any) -> Self:
        """Add new items by their pairs with known users; the rows of the known items stay as they are.

        Raises UserError if an item is known already, a user is unknown, or the model cannot add items.
        """
        check_fitted(self)
        new = Pairs.of(pairs, **columns)
        positions = positions_of(new.users, self.users_, "user")
        if (known := np.isin(new.items.astype(str), self.items_.astype(str))).any():
            raise UserError(f"{new.items[known][0]!r} is an item already.", setting="pairs", advice="Fit again.")
        if not isinstance(self.run_.model, AddsTags):
            name = MODELS.name_of(self.run_.model)
            raise UserError(f"The model '{name}' cannot add items.", setting="model", value=name, advice="Fit again.")

        entries = new.weights.tocoo()
        shape = self.users_.size, new.items.size
        added = sp.csr_array((entries.data, (positions[entries.row], entries.col)), shape=shape)
        self.run_.model.add_tags(None, as_csr(added > 0))
        weights = sp.csr_array(sp.hstack([self.pairs_.weights, added], format="csr"))
        items = np.concatenate([self.items_, new.items.astype(self.items_.dtype.kind if self.items_.size else str)])
        given = as_csr(weights > 0)
        vocabulary = Vocabulary(items.astype(str).tolist(), np.bincount(given.indices, minlength=items.size))
        run = Run.of_parts(self.run_.parts.changed(vocabulary=vocabulary, given=given))
        self._set(run, Pairs(self.users_, items, weights, None, self.pairs_.has_weights), self._rows)
        return self

    def score(self, X: PairSource, y: object = None) -> float:
        """Return the mean reciprocal rank of one hidden item of each user, whose other pairs are folded in."""
        hidden = hold_one_out(Pairs.of(X).weights, np.random.default_rng(0))
        folded = self.fold_in(as_csr(hidden.known))
        ranks = measure(folded.scores(np.arange(folded.users_.size)), hidden.held, ["mrr"], exclude=hidden.known)
        return float(ranks["mrr"].mean())

    def scores(self, users: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the scores of all items for users by their positions in `users_`, shape (n_users, n_items)."""
        return self.run_.model._scores(self._image_rows(users))

    def score_blocks(self, users: NDArray[np.int64]) -> Iterator[tuple[slice, NDArray[np.float32]]]:
        """Yield slices of `users`, which are positions, and their `scores`: memory doesn't grow with the users."""
        model, columns = self.run_.model, None
        step = max(1, BLOCK_SCORES // self.items_.size)
        for start in range(0, users.size, step):
            rows = slice(start, min(start + step, users.size))
            U = self._image_rows(users[rows])
            columns = transposed_for(U, model._tag_rows(), users.size) if columns is None else columns
            yield rows, model._scores(U, columns)

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Save the run, which `load` opens again; weights of pairs are not saved.

        Raises StorageError if there is a run at `path` and `overwrite` is False; UserError with features of users.
        """
        check_fitted(self)
        if self._are_folded or self.run_.given is None:
            raise UserError(
                "Only a recommender with the users of its fit, and without features of users, can be saved.",
                setting="path", value=str(path), advice="Save the recommender that `fit_pairs` returned.",
            )  # fmt: skip
        self.run_.save(path, overwrite=overwrite)

    @classmethod
    def load(cls, path: str | os.PathLike[str], n_jobs: int | None = None) -> Self:
        """Open a run of images known by number as a recommender. Raises StorageError if there is none at `path`."""
        run = Run.open(path, n_jobs, whole=True)
        if run.given is None or not isinstance(run.encoder, Ids):
            raise StorageError(f"{path} is a run of photos, not of pairs. Open it with Tagger.load.")
        are_numbers = str(run.facts.get(NAME_KINDS, ""))
        users, items = (
            np.array(names, np.int64 if kind in are_numbers else str)
            for kind, names in (("users", run.encoder.names_), ("items", run.vocabulary.tags))
        )
        recommender = cls(model=MODELS.name_of(run.model), n_jobs=n_jobs)
        recommender._set(run, Pairs(users, items, as_csr(run.given > 0)), identity_rows(users.size))
        return recommender

    def _new_model(self) -> Annotator:
        """Return the unfitted model, with the settings."""
        params = dict(self.model_params or {})
        if isinstance(self.model, Annotator):
            return clone(self.model).set_params(**params)
        return make_model(self.model, params, {"random_state": self.random_state, "n_jobs": self.n_jobs})

    def _set(self, run: Run, pairs: Pairs, rows: Matrix, *, are_folded: bool = False) -> None:
        """Set what was learned, and the users' feature rows, or their rows in the model's space if `are_folded`."""
        self.run_, self.pairs_, self.users_, self.items_ = run, pairs, pairs.users, pairs.items
        self._rows, self._are_folded = rows, are_folded

    def _image_rows(self, users: NDArray[np.int64]) -> Matrix:
        rows: Any = self._rows[users]
        return rows if self._are_folded else self.run_.model.image_rows(rows)


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
    random_state: int = 0,
    n_jobs: int | None = None,
    progress: Progress = SILENT,
) -> Recommender:
    """Learn from pairs of users and items, to recommend items; like ``visterm fit --pairs``.

    Parameters
    ----------
    pairs : DataFrame, list of dicts, dict of columns, path, or sparse matrix of shape (n_users, n_items)
        Each pair counts once: repeated pairs are one, with the sum of their weights.
    user, item : str
        Columns of the frame or file.
    weight : str, optional
        Column of weights, numbers above 0. ``ease`` and ``knn`` use them as values of the matrix, ``als`` as
        confidences, ``wsabie`` and ``vse_ens`` to draw pairs; other models raise an error.
    time : str, optional
        Column of times, for temporal splits (`evaluate_pairs`).
    users, items : array-like, optional
        Names of the rows and columns of a sparse matrix; None: their numbers.
    model, model_params, random_state, n_jobs
        As in `Recommender`.
    user_features, progress
        As in `Recommender.fit`.

    Returns
    -------
    Recommender
        Fitted.

    Raises
    ------
    DataError
        If pairs can't be read (`Pairs.of`).
    UserError
        If the model is unknown, or doesn't use weights or features.

    Examples
    --------
    >>> recommender = visterm.fit_pairs(frame, user="user_id", item="movie_id")  # doctest: +SKIP
    >>> recommender.recommend(["ann", "bob"], k=10).to_pandas()  # doctest: +SKIP
    """
    read = Pairs.of(pairs, user=user, item=item, weight=weight, time=time, users=users, items=items)
    recommender = Recommender(model=model, model_params=model_params, random_state=random_state, n_jobs=n_jobs)
    return recommender.fit(read, user_features=user_features, progress=progress)


def _check_uses(model: Annotator, pairs: Pairs, user_features: object) -> None:
    """Raise UserError if a model doesn't use the weights or the features."""
    by_number_only = ("auto", "ease", "knn", "als", "prior")
    name = MODELS.name_of(model)
    for setting, is_used, is_given, others in (
        ("weight", model.uses_pair_weights, pairs.has_weights, "ease, knn, als, wsabie or vse_ens"),
        ("user_features", name not in by_number_only, user_features is not None, "wsabie or vse_ens"),
    ):
        if is_given and not is_used:
            hint = " (`matrix > 0` has no weights)" if setting == "weight" else ""
            raise UserError(
                f"The model '{name}' doesn't use `{setting}`.",
                setting=setting,
                advice=f"Leave it out{hint}, or choose another `model`: {others}.",
            )  # fmt: skip


def _most_similar(model: Any, names: NDArray[Any], wanted: Sequence[Any] | None, k: int) -> Recommendations:
    """Return the `k` items with the highest scores for a user with only the wanted item."""
    check_count(k, "k")
    items = np.arange(names.size) if wanted is None else positions_of(wanted, names, "item")
    k = min(k, names.size - 1)
    ids, scores = np.empty((items.size, k), np.int64), np.empty((items.size, k), np.float32)
    step = max(1, BLOCK_SCORES // names.size)
    for start in range(0, items.size, step):
        block = items[start : start + step]
        rows = model._scores(model.fold_in(identity_rows(names.size)[block]))
        rows[np.arange(block.size), block] = -np.inf
        ids[start : start + step], scores[start : start + step] = top_k(rows, k)
    return Recommendations(names[items], names[ids], scores)


def _nearest(vectors: Any, names: NDArray[Any], wanted: Sequence[Any] | None, k: int, kind: str) -> Recommendations:
    """Return the `k` other rows of highest cosine of the wanted rows."""
    check_count(k, "k")
    rows = np.arange(names.size) if wanted is None else positions_of(wanted, names, kind)
    units = unit_rows(vectors)
    k = min(k, names.size - 1)
    ids, cosines = np.empty((rows.size, k), np.int64), np.empty((rows.size, k), np.float32)
    step = max(1, BLOCK_SCORES // names.size)
    for start in range(0, rows.size, step):
        block = rows[start : start + step]
        products = np.ascontiguousarray(dense(units[block] @ units.T), np.float32)
        products[np.arange(block.size), block] = -np.inf
        ids[start : start + step], cosines[start : start + step] = top_k(products, k)
    return Recommendations(names[rows], names[ids], cosines)


def _write_parquet(file: Path, blocks: Iterator[Recommendations]) -> int:
    """Write the rows of all blocks as one Parquet file; return the number of users."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise MissingExtraError("Parquet needs pyarrow. Install it with: pip install 'visterm[parquet]'") from error
    writer, n_users = None, 0
    try:
        for block in blocks:
            n, k = block.scores.shape
            n_users += n
            kept = block.scores.ravel() > -np.inf
            columns = {
                "user": np.repeat(block.users, k), "rank": np.tile(np.arange(1, k + 1), n),
                "item": block.items.ravel(), "score": block.scores.ravel(),
            }  # fmt: skip
            table = pa.table({name: column[kept] for name, column in columns.items()})
            writer = pq.ParquetWriter(file, table.schema) if writer is None else writer
            writer.write_table(table)
    finally:
        if writer is not None:
            writer.close()
    return n_users
