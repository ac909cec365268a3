"""A base class with scikit-learn's estimator interface that does not import scikit-learn, so commands start fast."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import cache, wraps
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar

from visterm.core.errors import UserError
from visterm.core.registry import unknown

if TYPE_CHECKING:
    from sklearn.utils import Tags

E = TypeVar("E")
P = ParamSpec("P")
R = TypeVar("R")


class Estimator:
    """A replacement for `sklearn.base.BaseEstimator`, with parameters for `clone` and `GridSearchCV`, and a repr.

    The settings are the parameters of the constructor, which stores each as an attribute of the same name.
    """

    if TYPE_CHECKING:  # subclasses have more attributes, which callers check with `isinstance` or `hasattr`

        def __getattr__(self, name: str) -> Any: ...

        def __setattr__(self, name: str, value: object) -> None: ...

    @classmethod
    @cache  # called several times per fit
    def _get_param_names(cls) -> list[str]:
        """Return the names of the settings in alphabetical order; scikit-learn calls this too."""
        return [] if cls.__init__ is object.__init__ else sorted(inspect.signature(cls).parameters)

    def get_params(self, deep: bool = True) -> dict[str, object]:
        """Return name -> setting; with `deep`, also settings of inner estimators, as ``estimator__setting``."""
        params: dict[str, Any] = {}
        for name in self._get_param_names():
            value = params[name] = getattr(self, name)
            if deep and hasattr(value, "get_params") and not isinstance(value, type):
                params.update((f"{name}__{key}", inner_value) for key, inner_value in value.get_params().items())
        return params

    def set_params(self, **params: object) -> Self:
        """Change settings; ``estimator__setting`` is a setting of an inner estimator.

        Raises ValueError for an unknown setting.
        """
        names = self._get_param_names() if params else []
        for key, value in params.items():
            name, separator, inner_name = key.partition("__")
            if name not in names:
                raise ValueError(f"Invalid parameter {name!r} for estimator {self}. Valid parameters are: {names!r}.")
            if separator:
                getattr(self, name).set_params(**{inner_name: value})
            else:
                setattr(self, name, value)
        return self

    def set_known(self, **params: object) -> Self:
        """Change the settings that this estimator has, and ignore the others; for `n_jobs` and `random_state`."""
        names = self._get_param_names()
        return self.set_params(**{name: value for name, value in params.items() if name in names})

    def __repr__(self) -> str:
        """Show the settings that differ from the defaults."""
        defaults = inspect.signature(type(self)).parameters
        reprs = {name: repr(value) for name, value in self.get_params(deep=False).items()}
        changed = (f"{name}={text}" for name, text in reprs.items() if text != repr(defaults[name].default))
        return f"{type(self).__name__}({', '.join(changed)})"

    def __sklearn_tags__(self) -> Tags:
        """Return scikit-learn's description of the estimator."""
        from sklearn.utils import Tags, TargetTags

        return Tags(estimator_type=None, target_tags=TargetTags(required=False))


def clone(estimator: E) -> E:
    """Return an unfitted copy of an estimator with the same settings; inner estimators are cloned too."""
    says_how = any(hasattr(estimator, name) for name in ("__sklearn_clone__", "_sklearn_output_config"))
    if isinstance(estimator, Estimator) and not says_how:
        settings = estimator.get_params(deep=False)
        if all(value is None or type(value) in (bool, int, float, str) for value in settings.values()):
            return type(estimator)(**settings)  # nothing to copy: scikit-learn is slow to import
    from sklearn.base import clone as sklearn_clone

    copy: E = sklearn_clone(estimator)
    return copy


def check_fitted(estimator: object) -> None:
    """Raise scikit-learn's NotFittedError for an estimator without a learned attribute (a name that ends in ``_``)."""
    if not any(name.endswith("_") and not name.startswith("__") for name in vars(estimator)):
        from sklearn.exceptions import NotFittedError

        raise NotFittedError(f"This {type(estimator).__name__} has learned nothing yet. Call fit first.")


def known_settings(
    title: str, elsewhere: Mapping[str, str] | None = None
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorate a function `title`: an unknown keyword is a UserError that names the most similar parameter.

    For settings that belong elsewhere, `elsewhere` says where: name -> advice.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        names = [name for name in inspect.signature(function).parameters if name != "self"]

        @wraps(function)
        def checked(*args: P.args, **settings: P.kwargs) -> R:
            for name, value in settings.items():
                if elsewhere is not None and name in elsewhere:
                    problem = f"`{name}` is not a setting of {title}."
                    raise UserError(problem, setting=name, value=value, advice=elsewhere[name])
                if name not in names:
                    raise UserError(unknown(f"setting of {title}", name, names), setting=name, value=value)
            return function(*args, **settings)

        return checked

    return decorate
