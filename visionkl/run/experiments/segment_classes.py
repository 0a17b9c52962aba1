"""Segments classified by learned kernels: the second part of `bench segments` (METHODS §3, §7, §11).

Masks become eight channels of features (`visionkl.run.experiments.segment_samples`), and all channels have
the exponential χ² kernel with the mean distance as its width. Against each other learn, from more and more
segments,

- **RFF-MKL**: a weight for each kernel and class, on random Fourier features, at a fixed σ; beside it equal
  weights, the channel that is best alone, and, with all segments only, RFF-MKL-JOINT, which learns σ as well;
- **GMKL**: the same weights of the exact kernels, until that takes too long;
- **RFF-SKL**: one kernel of all channels side by side, with a σ learned for each;
- **KRR-GD**: the same with the exact kernel, until that takes too long.

The protocol. Training pictures give the samples to learn from: masks of objects, and proposals that overlap
one. Smaller training sets are random parts of larger ones. What must be chosen, λ or C and the best channel,
is chosen by accuracy on each third of the training *pictures* after learning from the other two; σ of the
single kernels is judged by one third. Segments of one picture are too alike to judge each other. Then the
machine learns from all. Test pictures give masks of objects, and proposals that overlap one by more than a
half.

The published experiment has 20 classes, up to 10⁴ segments for each, of half of 2223 pictures of VOC2011, and
says nothing of how test segments are chosen: its accuracies are beside ours for their course, not for their
height.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from visionkl.core.rng import stream
from visionkl.learning.exact import KernelRidgeGDClassifier
from visionkl.learning.gmkl import GMKLClassifier
from visionkl.learning.multiple import FourierMKLClassifier
from visionkl.learning.single import FourierKernelClassifier
from visionkl.run.console import Console
from visionkl.run.experiments.channel_blocks import gaussian_inputs
from visionkl.run.experiments.scaling import Contender, Problem, Score, attempt, climb, score
from visionkl.run.experiments.segment_tables import GMKL, MKL, report_classes

if TYPE_CHECKING:
    from visionkl.run.experiments.findings import Findings
    from visionkl.run.experiments.segment_samples import Samples

JOINT, EQUAL, ALONE = "RFF-MKL-JOINT", "equal weights (RFF)", "best channel alone (RFF)"
SKL, KRR = "RFF-SKL", "KRR-GD, exact"

_SHARES = (0.3, 0.1, 0.03, 0.01, 0.003)
_COSTS = (10.0, 100.0, 1000.0)
# Settings are chosen with at most so many training segments, for each third of the pictures.
_CHOOSE_FROM = 1000
# So large a share of the training segments is not worth a step of its own before all of them.
_NEARLY_ALL = 0.8
# Steps of the searches along σ, which gain little after the first few.
_STEPS = 10


@dataclass(frozen=True)
class Settings:
    """What the comparison is told.

    Parameters
    ----------
    sizes : sequence of int
        Numbers of segments to learn from; those that are not there, or nearly all, are left out, and all
        are added.
    components : int
        Fourier features of a channel; the single kernel has four times as many.
    exact_minutes : float
        An exact method is not trained where it would take longer.
    seed : int
    """

    sizes: Sequence[int]
    components: int
    exact_minutes: float
    seed: int


@dataclass(frozen=True)
class _Model:
    """A method, the channels that it sees, and the values of its one parameter to choose among."""

    name: str
    make: Callable[[float], Any]
    channels: list[npt.NDArray[np.float32]]
    values: Sequence[float] = ()
    most_seconds: float = np.inf
    power: float = 1.0


class ByPicture:
    """A single kernel of all channels side by side, whose σ is judged by the segments of held-out pictures.

    Parameters
    ----------
    model : FourierKernelClassifier or KernelRidgeGDClassifier
    held : ndarray of bool
        Which training samples are of pictures that are held out.
    """

    def __init__(self, model: Any, held: npt.NDArray[np.bool_]) -> None:
        self.model, self.held = model, held

    def fit(self, X: Sequence[npt.NDArray[Any]], y: npt.NDArray[Any]) -> ByPicture:
        """Learn from the first `len(y)` training samples."""
        rows, held = np.hstack(X), self.held[: len(y)]
        if held.all() or not held.any():  # too few samples to be of more pictures
            self.model.fit(rows, y)
        else:
            self.model.fit(rows[~held], y[~held], validation=(rows[held], y[held]))
        return self

    def predict(self, X: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
        """Return the class of each sample."""
        return np.asarray(self.model.predict(np.hstack(X)))


def learn_classes(findings: Findings, samples: Samples, settings: Settings, console: Console) -> None:
    """Compare the methods on samples, and add tables and plots to the findings."""
    comparison = _Comparison(samples, settings, console)
    smaller = [n for n in sorted(set(settings.sizes)) if n < _NEARLY_ALL * samples.n_train]
    sizes = [*smaller, samples.n_train]
    ladders: dict[str, list[Score]] = {}
    for model in console.track(comparison.models(), "methods"):
        ladders[model.name] = comparison.climb(model, sizes)
    ladders[JOINT] = [comparison.joint()]
    report_classes(findings, samples, ladders, comparison.chosen, comparison.tested)


class _Comparison:
    """Methods on one set of samples: makes them, chooses their parameters, trains and tests them.

    Attributes
    ----------
    chosen : dict of str to str
        What was chosen, by method, for people.
    tested : dict of str to ndarray of str
        The classes that each method, having learned from all it could, gives to the test samples.
    """

    def __init__(self, samples: Samples, settings: Settings, console: Console) -> None:
        self.samples, self.settings, self.console = samples, settings, console
        console.note("mapping the channels for their Fourier features ...")
        rows = np.arange(samples.n_train)
        self.mapped = [gaussian_inputs(block, rows) for block in samples.blocks]
        self.thirds = thirds_of_pictures(samples.pictures[samples.train], settings.seed)
        self.held = self.thirds == 0
        self.chosen: dict[str, str] = {}
        self.tested: dict[str, npt.NDArray[np.str_]] = {}
        self._share = _SHARES[0]

    def models(self) -> list[_Model]:
        """List those that learn from more and more samples."""
        exact = 60 * self.settings.exact_minutes
        single: dict[str, Any] = {
            "learn": "blocks",
            "blocks": [block.shape[1] for block in self.mapped],
            "max_iter": _STEPS,
            "random_state": self.settings.seed,
            "n_jobs": self.console.jobs,
        }
        skl = partial(FourierKernelClassifier, n_components=4 * self.settings.components, **single)
        krr = partial(KernelRidgeGDClassifier, **single)
        gmkl = partial(GMKLClassifier, kernel="exp_chi2", tol=1e-3, n_jobs=self.console.jobs)
        blocks = self.samples.blocks
        return [
            _Model(MKL, self._fourier("l21"), self.mapped, _SHARES),
            _Model(EQUAL, self._fourier("l2"), self.mapped, _SHARES),
            self._best_alone(),
            _Model(GMKL, lambda cost: gmkl(C=cost), blocks, _COSTS, exact, 2.5),
            _Model(SKL, lambda _: ByPicture(skl(), self.held), self.mapped),
            _Model(KRR, lambda _: ByPicture(krr(), self.held), self.mapped, (), exact, 2.0),
        ]

    def climb(self, model: _Model, sizes: Sequence[int]) -> list[Score]:
        """Choose the parameter of a method, and train it on more and more samples."""
        value = 0.0
        if model.values:
            value, _ = self._choose(model)
            self.chosen.setdefault(model.name, f"{'C' if model.name == GMKL else 'share of λ'} {value:g}")
        if model.name == MKL:
            self._share = value
        contender = Contender(model.name, partial(model.make, value), model.most_seconds, model.power)
        problem = self._problem(model.channels)
        scores = climb(contender, problem, sizes, self.console)
        trained = [one for one in scores if one.model is not None]
        if trained:
            self._test(model.name, trained[-1], model.channels)
        # Only weights are looked at from now on; models hold samples.
        return [replace(one, model=getattr(one.model, "kernel_weights_", None)) for one in scores]

    def joint(self) -> Score:
        """Train RFF-MKL with learned σ on all samples, at the λ of that with fixed σ."""
        self.console.note(f"{JOINT}, {self.samples.n_train} samples ...")
        make = partial(self._fourier("l21", learn_sigma=True, sigma_iter=_STEPS), self._share)
        found = score(Contender(JOINT, make), self._problem(self.mapped))
        self.chosen[JOINT] = self.chosen[MKL]
        self._test(JOINT, found, self.mapped)
        return replace(found, model=found.model.kernel_weights_)

    def _fourier(self, penalty: str, **others: Any) -> Callable[[float], Any]:
        def make(share: float) -> FourierMKLClassifier:
            return FourierMKLClassifier(
                penalty=penalty,
                share=share,
                sigma=1.0,
                n_components=self.settings.components,
                tol=1e-3,
                random_state=self.settings.seed,
                n_jobs=self.console.jobs,
                **others,
            )

        return make

    def _best_alone(self) -> _Model:
        """Return the model of the channel that is best on pictures that it did not learn from."""
        models = [_Model(ALONE, self._fourier("l2"), [block], _SHARES) for block in self.mapped]
        found = [self._choose(model) for model in self.console.track(models, "single channels")]
        best = int(np.argmax([accuracy for _, accuracy in found]))
        value = found[best][0]
        self.chosen[ALONE] = f"{self.samples.names[best]}, share of λ {value:g}"
        return replace(models[best], values=[value])

    def _choose(self, model: _Model) -> tuple[float, float]:
        """Return the value that is best on pictures that were not learned from, and its accuracy there."""
        if len(model.values) == 1:
            return model.values[0], np.nan
        y = self.samples.labels[self.samples.train]
        makers = [Contender(model.name, partial(model.make, value)) for value in model.values]
        right, n_judged = np.zeros(len(makers)), 0
        for third in range(3):
            learned = np.flatnonzero(self.thirds != third)[:_CHOOSE_FROM]
            held = np.flatnonzero(self.thirds == third)
            if not len(held) or len(np.unique(y[learned])) < 2:  # very few pictures
                continue
            parts = [([block[rows] for block in model.channels], y[rows]) for rows in (learned, held)]
            trial = Problem(*parts[0], *parts[1])
            right += [len(held) * float(attempt(maker, trial).accuracy or 0) for maker in makers]
            n_judged += len(held)
        best = int(np.argmax(right))
        return model.values[best], right[best] / max(n_judged, 1)

    def _problem(self, channels: list[npt.NDArray[np.float32]]) -> Problem:
        train, masks, labels = self.samples.train, self.samples.masks, self.samples.labels
        return Problem(
            [block[train] for block in channels],
            labels[train],
            [block[masks] for block in channels],
            labels[masks],
        )

    def _test(self, name: str, found: Score, channels: list[npt.NDArray[np.float32]]) -> None:
        self.tested[name] = found.model.predict([block[self.samples.n_train :] for block in channels])


def thirds_of_pictures(pictures: npt.NDArray[np.intp], seed: int) -> npt.NDArray[np.intp]:
    """Deal the pictures out at random, and return the third, 0 to 2, that each sample's picture is in.

    Examples
    --------
    >>> thirds = thirds_of_pictures(np.array([7, 7, 4, 9, 4]), 0)
    >>> bool(thirds[0] == thirds[1] and thirds[2] == thirds[4]), sorted(thirds[[0, 2, 3]].tolist())
    (True, [0, 1, 2])
    """
    numbers, of_sample = np.unique(pictures, return_inverse=True)
    dealt = stream(seed, "thirds of the pictures").permutation(len(numbers)) % 3
    return np.asarray(dealt[of_sample], dtype=np.intp)
