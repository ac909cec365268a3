"""scikit-learn's rules for estimators, kept without importing it: searches and annotations start without it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache
from types import MethodType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from visterm.core.errors import UserError

if TYPE_CHECKING:
    from sklearn.utils import Tags

E = TypeVar("E")


class _SetRequest:
    """``set_METHOD_request`` of scikit-learn's metadata routing, where the method takes such data; made at use."""

    def __init__(self, method: str) -> None:
        self._method = method

    def __get__(self, instance: object, owner: type) -> Any:
        """Return scikit-learn's method, or raise AttributeError where there is nothing to ask for."""
        from sklearn.utils._metadata_requests import RequestMethod

        keys = sorted(owner._get_class_level_metadata_request_values(self._method))  # type: ignore[attr-defined]
        if not keys:
            raise AttributeError(f"{owner.__name__} has no attribute 'set_{self._method}_request'")
        return RequestMethod(self._method, keys).__get__(instance, owner)


class Estimator:
    """What `sklearn.base.BaseEstimator` does for `clone`, `GridSearchCV` and people at a prompt.

    The settings are the parameters of the constructor, which keeps each as an attribute of the same name.
    """

    if TYPE_CHECKING:  # subclasses have attributes that the caller has asked for by `isinstance` or `hasattr`

        def __getattr__(self, name: str) -> Any: ...

        def __setattr__(self, name: str, value: object) -> None: ...

    @classmethod
    @cache  # settings are asked for several times in each fit
    def _get_param_names(cls) -> list[str]:
        """Return the names of the settings in alphabetical order; scikit-learn calls this too."""
        return [] if cls.__init__ is object.__init__ else sorted(inspect.signature(cls).parameters)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the settings by name, with `deep` also those of estimators among them, as ``estimator__setting``."""
        params: dict[str, Any] = {}
        for name in self._get_param_names():
            value = params[name] = getattr(self, name)
            if deep and hasattr(value, "get_params") and not isinstance(value, type):
                params.update((f"{name}__{key}", inner) for key, inner in value.get_params().items())
        return params

    def set_params(self, **params: object) -> Self:
        """Change settings, ``estimator__setting`` those of an estimator among them.

        Raises ValueError if there is no such setting.
        """
        names = self._get_param_names() if params else []
        for key, value in params.items():
            name, inner, rest = key.partition("__")
            if name not in names:
                raise ValueError(f"Invalid parameter {name!r} for estimator {self}. Valid parameters are: {names!r}.")
            if inner:
                getattr(self, name).set_params(**{rest: value})
            else:
                setattr(self, name, value)
        return self

    def set_known(self, **params: object) -> Self:
        """Change those of some settings that it has: threads and seeds, of whatever is used."""
        names = self._get_param_names()
        return self.set_params(**{name: value for name, value in params.items() if name in names})

    def __repr__(self) -> str:
        """Show the settings that differ from the defaults."""
        defaults = inspect.signature(type(self)).parameters
        shown = {name: repr(value) for name, value in self.get_params(deep=False).items()}
        changed = (f"{name}={text}" for name, text in shown.items() if text != repr(defaults[name].default))
        return f"{type(self).__name__}({', '.join(changed)})"

    set_fit_request = _SetRequest("fit")
    set_partial_fit_request = _SetRequest("partial_fit")
    set_score_request = _SetRequest("score")

    def get_metadata_routing(self) -> Any:
        """Return which arguments of its methods this estimator asks meta-estimators for (scikit-learn's routing)."""
        from sklearn.utils._metadata_requests import _MetadataRequester

        return _MetadataRequester._get_metadata_request(self)

    _get_metadata_request = get_metadata_routing

    @classmethod
    def _get_class_level_metadata_request_values(cls, method_name: str) -> dict[str, Any]:
        """Return what a method takes beside features and tags; scikit-learn calls this too."""
        from sklearn.utils._metadata_requests import _MetadataRequester

        return dict(_MetadataRequester._get_class_level_metadata_request_values.__func__(cls, method_name))

    def __sklearn_tags__(self) -> Tags:
        """Return what scikit-learn wants to know of an estimator."""
        from sklearn.utils import Tags, TargetTags

        return Tags(estimator_type=None, target_tags=TargetTags(required=False))


def clone(estimator: E) -> E:
    """Return an unfitted estimator with the same settings, those inside it cloned too."""
    from sklearn.base import clone as clone_by_sklearn

    copy: E = clone_by_sklearn(estimator)
    return copy


def check_fitted(estimator: object) -> None:
    """Raise scikit-learn's NotFittedError for an estimator without a learned attribute, one that ends in ``_``."""
    if not any(name.endswith("_") and not name.startswith("__") for name in vars(estimator)):
        from sklearn.exceptions import NotFittedError

        raise NotFittedError(f"This {type(estimator).__name__} has learned nothing yet. Call fit first.")


class only_if:  # noqa: N801, a decorator
    """Hide a method from objects of which a check raises `UserError`, as scikit-learn's ``available_if`` does."""

    def __init__(self, check: Callable[[Any], object]) -> None:
        self._check = check

    def __call__(self, method: Callable[..., Any]) -> Any:
        """Take the method."""
        self._method = method
        return self

    def __get__(self, instance: Any, owner: type) -> Any:
        """Return the method, or raise AttributeError."""
        if instance is None:
            return self._method
        try:
            self._check(instance)
        except UserError as error:
            raise AttributeError(f"This {owner.__name__} has no attribute {self._method.__name__!r}") from error
        return MethodType(self._method, instance)
