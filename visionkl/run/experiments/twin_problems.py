"""The problems of the experiment `twin`: what is drawn, what an error is, what was published."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from visionkl.core.errors import DataError
from visionkl.core.rng import stream
from visionkl.run.experiments.articulated import walking_figures

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Array = npt.NDArray[np.float64]

#: Noise of the S-shape's x.
_NOISE = 0.05
_DIGITS_SHOWN = 12


@dataclass(frozen=True, eq=False)
class Draw:
    """Samples to learn from, and new ones."""

    X: Array
    Y: Array
    X_new: Array
    Y_new: Array


class Problem:
    """A problem that can be drawn as often as wanted.

    Parameters
    ----------
    n_train, n_test : int

    Attributes
    ----------
    paper : dict of str to str
        Published figures, by the names of methods.
    """

    title: str
    measure = "error"
    note = ""
    #: Draws on which settings are chosen.
    n_choices = 1

    def __init__(self, n_train: int, n_test: int) -> None:
        self.n_train = n_train
        self.n_test = n_test
        self.paper: dict[str, str] = {}

    def draw(self, seed: int) -> Draw:
        """Draw samples; the same seed gives the same ones."""
        raise NotImplementedError

    def other_errors(self, draw: Draw, found: Array) -> dict[str, float]:
        """Return other measures of answers than the mean absolute error."""
        return {}

    def plots(self, shown: tuple[Draw, dict[str, Array]]) -> list[tuple[str, str, Figure]]:
        """Plot the answers to one draw: name of the file, title, and figure."""
        return []

    def _cut(self, X: Array, Y: Array) -> Draw:
        n = self.n_train
        return Draw(X[:n], Y[:n], X[n:], Y[n:])


class SShape(Problem):
    """r from x = r + 0.3 sin(2πr) + noise: one x may have three r."""

    title = "S-shape"
    n_choices = 10  # small draws, whose errors differ much
    note = (
        "Where x allows three answers, the least mean absolute error is that of the middle one, which need "
        "not be near any; so the distance to the nearest r that x allows (within the noise) is given as well."
    )

    def draw(self, seed: int) -> Draw:
        """Draw samples; the same seed gives the same ones."""
        random = stream(seed, "s-shape")
        r = random.uniform(size=self.n_train + self.n_test)
        x = _curve(r) + _NOISE * random.standard_normal(len(r))
        return self._cut(x[:, None], r)

    def other_errors(self, draw: Draw, found: Array) -> dict[str, float]:
        """Return the mean distance to the nearest r that x allows."""
        r = np.linspace(0, 1, 1001)
        away = np.abs(_curve(r) - draw.X_new)
        allowed = away <= np.maximum(_NOISE, away.min(axis=1, keepdims=True))
        distances = np.where(allowed, np.abs(found[:, None] - r), np.inf)
        return {"to the nearest r": float(distances.min(axis=1).mean())}

    def plots(self, shown: tuple[Draw, dict[str, Array]]) -> list[tuple[str, str, Figure]]:
        """Plot the answers of four methods."""
        from visionkl.report.regression import plot_answers

        draw, answers = shown
        processes = ("KL without map", "KL with map", "HSIC with map")
        names = {"KRR": "KRR"} | {short: f"{short}, default widths" for short in processes}
        curves = {short: (draw.X_new[:, 0], answers[name]) for short, name in names.items()}
        figure = plot_answers((draw.X[:, 0], draw.Y), curves, x_label="x", y_label="r")
        return [("s_shape", "S-shape: samples (grey) and answers", figure)]


class Digits(Problem):
    """The lower half of a handwritten digit from the upper half.

    Parameters
    ----------
    path : Path
        usps.npz.
    n_train, n_test : int
    """

    title = "USPS"
    note = "The paper's figures are of an unknown number of samples; its MAE fits pixels from −1 to 1."

    def __init__(self, path: Path, n_train: int, n_test: int) -> None:
        super().__init__(n_train, n_test)
        self.paper = {
            "nearest neighbour": "0.341",
            "KRR": "0.250",
            "SVR": "0.250",
            "KL without map, chosen widths": "0.2151",
            "KL with map, chosen widths": "0.2108",
            "HSIC without map, chosen widths": "0.3399",
            "HSIC with map, chosen widths": "0.3327",
            "gain KL": "+1.99",
            "gain HSIC": "+2.48",
        }
        self._digits = _read_digits(path)
        if len(self._digits) < n_train + n_test:
            raise DataError(f"{path}: holds {len(self._digits)} digits, where {n_train + n_test} are needed.")

    def draw(self, seed: int) -> Draw:
        """Draw digits; the same seed gives the same ones."""
        chosen = stream(seed, "digits").permutation(len(self._digits))[: self.n_train + self.n_test]
        digits = self._digits[chosen]
        return self._cut(digits[:, :128], digits[:, 128:])

    def plots(self, shown: tuple[Draw, dict[str, Array]]) -> list[tuple[str, str, Figure]]:
        """Plot digits as they are and as they are completed."""
        from visionkl.report.regression import plot_picture_rows

        draw, answers = shown
        upper = draw.X_new[:_DIGITS_SHOWN]

        def whole(lower: Array) -> list[Array]:
            return [pair.reshape(16, 16) for pair in np.hstack([upper, lower[:_DIGITS_SHOWN]])]

        rows = {"digit": whole(draw.Y_new), "given": whole(np.full_like(draw.Y_new, np.nan))}
        for name in (
            "nearest neighbour",
            "KRR",
            "KL without map, chosen widths",
            "KL with map, chosen widths",
        ):
            rows[name.split(",")[0]] = whole(answers[name])
        return [("digits", "USPS: lower halves from upper halves", plot_picture_rows(rows, low=-1, high=1))]


class Pose(Problem):
    """Joint angles of a walking figure from its silhouette."""

    title = "Pose"
    measure = "error, degrees"
    note = "The paper's gains are those of the Poser set, whose errors it does not give."

    def __init__(self, n_train: int, n_test: int) -> None:
        super().__init__(n_train, n_test)
        self.paper = {"gain KL": "+6.39", "gain HSIC": "+1.26"}

    def draw(self, seed: int) -> Draw:
        """Draw figures; the same seed gives the same ones."""
        figures = walking_figures(self.n_train + self.n_test, seed)
        return self._cut(figures.descriptors, figures.angles)


def _curve(r: Array) -> Array:
    return r + 0.3 * np.sin(2 * np.pi * r)


def _read_digits(path: Path) -> Array:
    """Return digits with pixels from −1 to 1, shape (n, 256)."""
    try:
        with np.load(path, allow_pickle=False) as file:
            digits = np.concatenate([file["x_train"], file["x_test"]])
    except (OSError, KeyError, ValueError) as error:
        raise DataError(
            f"{path}: cannot be read as USPS digits ({error}); a file with the arrays x_train and x_test is "
            "needed, with 256 numbers from 0 to 1000 a row."
        ) from None
    return digits.astype(np.float64) / 500 - 1
