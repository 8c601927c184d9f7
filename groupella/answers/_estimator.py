"""`select` as a scikit-learn estimator."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from groupella._masked import check_unmasked
from groupella.data import DataError

from ._answer import Answer
from ._select import Groups, select

Array = npt.NDArray[Any]


class SymmetrySelector(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier that finds out which symmetry the classes obey, and has it.

    Parameters
    ----------
    groups
        The candidates, as in `groupella.select`. By default permutations of the features for X (n,
        features), z2 and p4 for images (n, h, w), z3 and octahedral for voxels with channels.
    epochs, lr, width, held_out
        As in `groupella.training.FindSettings`.
    class_weight
        "balanced", a mapping from classes to weights, or None.
    random_state
        Random seed for the split, weights and batch order.

    Attributes
    ----------
    groups_
        The names of the groups that the classes obey; () for none or undecided.
    verdict_, confidence_
        The verdict in words, and the probability that it is right.
    answer_
        The whole `Answer`.
    classes_, n_features_in_
        The classes, and the length of the second axis of X.
    """

    def __init__(
        self,
        groups: Groups | None = None,
        *,
        epochs: int | None = None,
        lr: float = 0.01,
        width: int = 32,
        held_out: float = 0.25,
        class_weight: Any = None,
        random_state: Any = 0,
    ) -> None:
        self.groups = groups
        self.epochs = epochs
        self.lr = lr
        self.width = width
        self.held_out = held_out
        self.class_weight = class_weight
        self.random_state = random_state

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> SymmetrySelector:
        """Find the symmetry of the classes y (n,) of samples X (n, …), and train a network."""
        X, y = _validated(self, X, y=y)
        check_classification_targets(y)
        self.classes_ = np.unique(y)
        seed = self.random_state
        if not isinstance(seed, int | np.integer):
            seed = check_random_state(seed).randint(2**31)
        try:
            answer = select(
                X,
                y,
                self.groups,
                task="classes",
                weights=sample_weight,
                class_weights=self.class_weight,
                epochs=self.epochs,
                lr=self.lr,
                width=self.width,
                held_out=self.held_out,
                seed=int(seed),
            )
        except DataError as error:
            raise ValueError(str(error)) from error
        # Without its training, which cannot be pickled.
        self.answer_: Answer = replace(answer, fit=None)
        self.groups_ = self.answer_.groups
        self.verdict_ = self.answer_.verdict
        self.confidence_ = self.answer_.confidence
        return self

    def predict(self, X: Any) -> Array:
        """Return the class of each sample."""
        check_is_fitted(self)
        return np.asarray(self.classes_[self.predict_proba(X).argmax(1)])

    def predict_proba(self, X: Any) -> npt.NDArray[np.float64]:
        """Return the probability of each class, (n, K)."""
        check_is_fitted(self)
        return self.answer_.predict_proba(_validated(self, X))


def _validated(estimator: SymmetrySelector, X: Any, **y: Any) -> Any:
    """X, or X and y, as scikit-learn wants them checked."""
    for name, values in {"X": X, **y}.items():
        check_unmasked(values, name)
    options: dict[str, Any] = {"allow_nd": True, "dtype": "numeric", "reset": bool(y), **y}
    try:
        from sklearn.utils.validation import validate_data
    except ImportError:  # before scikit-learn 1.6
        return estimator._validate_data(X, **options)
    return validate_data(estimator, X, **options)
