"""The methods of the experiment `twin`, and how they are compared on one problem."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.kernel_ridge import KernelRidge
from sklearn.multioutput import MultiOutputRegressor
from sklearn.neighbors import KNeighborsRegressor
from sklearn.svm import SVR

from visionkl.kernels.exact import Gaussian
from visionkl.learning.twin import TwinGaussianProcess
from visionkl.learning.twin_kernels import twin_kernel
from visionkl.run.experiments.twin_problems import Draw, Problem

Array = npt.NDArray[np.float64]
#: Answers to the new samples of a draw, with some settings.
Method = Callable[..., Array]

#: The first draw on which settings are chosen; draws that are compared have numbers from 0 on.
_CHOICE = 1_000_000
_DEGREES = {"KL": (1, 11), "HSIC": (11, 11)}
#: σ in units of the default.
_INPUT_FACTORS = (1.0, 2.0)
_OUTPUT_FACTORS = (0.5, 1.0, 2.0, 4.0, 8.0)
#: Draws for methods that take long: one machine for each output.
_SLOW_DRAWS = 2


@dataclass
class Outcome:
    """What came out for one problem.

    Parameters
    ----------
    problem : Problem
    n_slow : int
        Draws of the slow methods.
    errors : dict of str to ndarray of float
        Mean absolute errors by method, one a draw.
    others : dict of str to dict of str to ndarray of float
        Other measures, by their names.
    chosen : dict of str to str
        Settings of a method, in words.
    shown : tuple of Draw and dict of str to ndarray of float
        The first draw, and all answers to it.
    """

    problem: Problem
    n_slow: int
    errors: dict[str, Array]
    others: dict[str, dict[str, Array]]
    chosen: dict[str, str]
    shown: tuple[Draw, dict[str, Array]]

    def pairs(self) -> dict[tuple[str, str], tuple[Array, Array]]:
        """Return errors without and with map, by criterion and widths."""
        return {
            (criterion, widths): (
                self.errors[process_name(criterion, False, widths)],
                self.errors[process_name(criterion, True, widths)],
            )
            for criterion, widths in product(_DEGREES, ("default", "chosen"))
        }


@dataclass
class Comparison:
    """All methods on one problem.

    Parameters
    ----------
    problem : Problem
    quick : bool
        Whether to try few settings.
    """

    problem: Problem
    quick: bool = False
    chosen: dict[str, dict[str, Any]] = field(init=False, default_factory=dict)

    def _n_choices(self) -> int:
        return 1 if self.quick else self.problem.n_choices

    def n_steps(self, n_seeds: int) -> int:
        """Count what `run` reports."""
        return sum(len(settings) for _, settings in self._tuned().values()) + n_seeds

    def run(self, n_seeds: int, advance: Callable[[], object]) -> Outcome:
        """Choose settings on draws of their own, and compare all methods on others."""
        draws = [self.problem.draw(_CHOICE + number) for number in range(self._n_choices())]
        for name, (method, settings) in self._tuned().items():
            errors = []
            for setting in settings:
                errors.append(
                    np.mean([np.abs(method(draw, **setting) - draw.Y_new).mean() for draw in draws])
                )
                advance()
            self.chosen[name] = settings[int(np.argmin(errors))]
        errors_of: dict[str, list[float]] = {}
        others: dict[str, dict[str, list[float]]] = {}
        shown = None
        n_slow = min(_SLOW_DRAWS, n_seeds)
        for seed in range(n_seeds):
            draw = self.problem.draw(seed)
            answers = {name: method(draw) for name, method in self._methods(slow=seed < n_slow).items()}
            shown = shown or (draw, answers)
            for name, found in answers.items():
                errors_of.setdefault(name, []).append(float(np.abs(found - draw.Y_new).mean()))
                for measure, value in self.problem.other_errors(draw, found).items():
                    others.setdefault(measure, {}).setdefault(name, []).append(value)
            advance()
        assert shown is not None
        return Outcome(
            self.problem,
            n_slow,
            _arrays(errors_of),
            {measure: _arrays(values) for measure, values in others.items()},
            {
                name: ", ".join(f"{key} {value:g}" for key, value in one.items())
                for name, one in self.chosen.items()
            },
            shown,
        )

    def _methods(self, *, slow: bool) -> dict[str, Method]:
        """Return all methods with the settings that were chosen for them."""
        methods: dict[str, Method] = {
            "nearest neighbour": nearest,
            "KRR": partial(ridge, **self.chosen["KRR"]),
        }
        if slow:
            methods["SVR"] = partial(support_vectors, **self.chosen["SVR"])
        for criterion, widths, mapped in product(_DEGREES, ("default", "chosen"), (False, True)):
            name = process_name(criterion, mapped, widths)
            methods[name] = partial(process, criterion=criterion, mapped=mapped, **self.chosen.get(name, {}))
        return methods

    def _tuned(self) -> dict[str, tuple[Method, list[dict[str, Any]]]]:
        """Return the methods whose settings are chosen, and the settings to choose from."""
        ridges = [{"sigma": s, "alpha": a} for s, a in product((0.5, 1.0, 2.0, 4.0), (1e-3, 1e-2, 1e-1, 1.0))]
        machines = [{"sigma": 2.0, "C": C} for C in (1.0, 10.0)]
        processes = [{"sigma": i, "output_sigma": o} for i, o in product(_INPUT_FACTORS, _OUTPUT_FACTORS)]
        tuned: dict[str, tuple[Method, list[dict[str, Any]]]] = {
            "KRR": (ridge, ridges),
            "SVR": (support_vectors, machines),
        }
        for criterion, mapped in product(_DEGREES, (False, True)):
            method = partial(process, criterion=criterion, mapped=mapped)
            tuned[process_name(criterion, mapped, "chosen")] = (method, processes)
        if self.quick:
            return {name: (method, settings[:2]) for name, (method, settings) in tuned.items()}
        return tuned


def process_name(criterion: str, mapped: bool, widths: str) -> str:
    """Name a twin Gaussian process in the tables."""
    return f"{criterion} {'with' if mapped else 'without'} map, {widths} widths"


def nearest(draw: Draw) -> Array:
    """Answer with the output of the nearest sample."""
    return KNeighborsRegressor(1).fit(draw.X, draw.Y).predict(draw.X_new)


def ridge(draw: Draw, *, sigma: float, alpha: float) -> Array:
    """Answer by kernel ridge regression with the mean taken off; σ is in units of the processes' default."""
    mean = draw.Y.mean(axis=0)
    model = KernelRidge(kernel="rbf", gamma=_gamma(draw, sigma), alpha=alpha).fit(draw.X, draw.Y - mean)
    return model.predict(draw.X_new) + mean


def support_vectors(draw: Draw, *, sigma: float, C: float) -> Array:
    """Answer by a support vector regression for each output, which is brought to unit variance."""
    outputs = draw.Y.reshape(len(draw.Y), -1)
    mean, spread = outputs.mean(axis=0), outputs.std(axis=0) + 1e-12
    model = MultiOutputRegressor(SVR(gamma=_gamma(draw, sigma), C=C, epsilon=0.1, cache_size=500))
    found = model.fit(draw.X, (outputs - mean) / spread).predict(draw.X_new) * spread + mean
    return found.reshape(len(found), *draw.Y.shape[1:])


def process(
    draw: Draw,
    *,
    criterion: str,
    mapped: bool,
    sigma: float = 1.0,
    output_sigma: float = 1.0,
) -> Array:
    """Answer by a twin Gaussian process; both σ's are in units of the default."""
    outputs = draw.Y.reshape(len(draw.Y), -1)
    model = TwinGaussianProcess(
        criterion=criterion.lower(),
        degrees=_DEGREES[criterion] if mapped else (1, 1),
        kernel=_widened(draw.X, sigma),
        output_kernel=_widened(outputs, output_sigma),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # nothing is to be repaired on the way
        return np.asarray(model.fit(draw.X, draw.Y).predict(draw.X_new))


def _widened(rows: Array, factor: float) -> Gaussian:
    return Gaussian(factor * _default_sigma(rows))


def _gamma(draw: Draw, factor: float) -> float:
    return (factor * _default_sigma(draw.X)) ** 2 / 2


def _default_sigma(rows: Array) -> float:
    kernel = twin_kernel("twin", "gaussian", rows)
    assert isinstance(kernel, Gaussian)
    return float(np.asarray(kernel.sigma).item())


def _arrays(values: dict[str, list[float]]) -> dict[str, Array]:
    return {name: np.array(numbers) for name, numbers in values.items()}
