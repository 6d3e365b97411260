"""Learning curves fitted to measured accuracies, and families of them read from tables.

A curve is `top - span * (1 + epochs / scale) ** -power`: a power law that begins at `top - span`
and comes near to `top`. It can only rise, whatever it was fitted to.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rota.core.learning import LearningCurves
from rota.errors import InputError
from rota.perf.shipped import chosen, shipped

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import ArrayLike

    from rota.core.types import Floats

POWERS: Final = (0.3, 4.0)
"""Between these powers of a curve is searched; beyond, curves of other scales look the same."""
_GRID: Final = 24
_ZOOMS: Final = 5
_OUTLIER: Final = 1.345
"""Robust standard deviations beyond which a residual counts by its size, not its square."""
_LEAST: Final = 1e-3
"""Differences in accuracy smaller than this are taken for noise."""
_PULL: Final = 1e-6
"""How strongly a fit is drawn towards the middle of the grid, where measurements say nothing."""


@dataclass(frozen=True)
class LearningCurve:
    """Accuracy by epochs, for a network of one size."""

    top: float
    span: float
    scale: float
    power: float

    def accuracy(self, epochs: ArrayLike) -> Floats:
        """Accuracy after these epochs."""
        left = (1.0 + np.asarray(epochs, np.float64) / self.scale) ** -self.power
        return np.asarray(self.top - self.span * left)


def fit_curve(
    epochs: ArrayLike, accuracy: ArrayLike, *, start: float | None = None
) -> LearningCurve:
    """The rising curve that is closest to measured accuracies, single outliers aside.

    `start` is the accuracy of an untrained network, if it is known, such as 1 / classes. With few
    measurements the curve stays near the simplest, of power 1 and a scale like the epochs seen.
    """
    e, a = _measured(epochs, accuracy)
    if start is not None and not 0 <= start < 1:
        raise InputError(f"start={start} must lie in [0, 1): the accuracy before any training.")
    weight = np.ones(len(e))
    for _ in range(4):
        curve = _closest(e, a, weight, start)
        off = np.abs(curve.accuracy(e) - a)
        spread = max(float(np.median(off)) / 0.6745, _LEAST)
        weight = np.minimum(1.0, _OUTLIER * spread / np.maximum(off, _LEAST))
    return curve


def extrapolation_error(
    epochs: ArrayLike, accuracy: ArrayLike, *, known: float = 0.5, start: float | None = None
) -> float:
    """How far a curve is off, in mean absolute accuracy, on the later measurements.

    It is fitted to the first part `known` of them, by epochs, and judged on the others.
    """
    e, a = _measured(epochs, accuracy)
    order = np.argsort(e, kind="stable")
    count = int(np.ceil(known * len(e)))
    if not 0 < count < len(e):
        raise InputError(
            f"known={known} of {len(e)} measurements leaves {len(e) - count} to judge by and "
            f"{count} to fit; give a part between 0 and 1, and two measurements or more."
        )
    seen, later = order[:count], order[count:]
    curve = fit_curve(e[seen], a[seen], start=start)
    return float(np.abs(curve.accuracy(e[later]) - a[later]).mean())


def _measured(epochs: ArrayLike, accuracy: ArrayLike) -> tuple[Floats, Floats]:
    e, a = np.asarray(epochs, np.float64), np.asarray(accuracy, np.float64)
    if e.ndim != 1 or e.shape != a.shape or not len(e):
        raise InputError(
            f"A learning curve is fitted to as many accuracies as epochs, one at least; got shapes "
            f"{e.shape} and {a.shape}."
        )
    for name, values, most in (("epochs", e, np.inf), ("accuracy", a, 1.0)):
        bad = ~((values >= 0) & (values <= most) & np.isfinite(values))
        if bad.any():
            where = int(bad.argmax())
            raise InputError(
                f"{name}[{where}]={values[where]} of a learning curve must be a number from 0"
                f"{' to 1' if most == 1 else ''}; leave out what was not measured."
            )
    return e, a


def _closest(e: Floats, a: Floats, weight: Floats, start: float | None) -> LearningCurve:
    """Search scale and power on a grid that closes in; for each, the best top and start."""
    usual = float(np.median(e[e > 0])) if (e > 0).any() else 1.0
    low, high = np.log([usual / 100, POWERS[0]]), np.log([usual * 100, POWERS[1]])
    middle, reach = np.log([usual, 1.0]), high - low
    centre = (low + high) / 2
    best: tuple[float, LearningCurve] | None = None
    for _ in range(_ZOOMS):
        sides = [
            np.clip(centre[k] + reach[k] * np.linspace(-0.5, 0.5, _GRID), low[k], high[k])
            for k in (0, 1)
        ]
        log_scale, log_power = (side.ravel() for side in np.meshgrid(*sides))
        left = (1.0 + e / np.exp(log_scale)[:, None]) ** -np.exp(log_power)[:, None]  # (G, n)
        top, begin = _ends(left, a, weight, start)
        off = top[:, None] * (1 - left) + begin[:, None] * left - a
        pull = (log_scale - middle[0]) ** 2 + (log_power - middle[1]) ** 2
        cost = (weight * off**2).sum(axis=1) + _PULL * pull
        k = int(cost.argmin())
        if best is None or cost[k] < best[0]:
            scale, power = float(np.exp(log_scale[k])), float(np.exp(log_power[k]))
            found = LearningCurve(float(top[k]), float(top[k] - begin[k]), scale, power)
            best, centre = (float(cost[k]), found), np.array([log_scale[k], log_power[k]])
        reach = reach / (_GRID / 4)
    assert best is not None
    return best[1]


def _ends(left: Floats, a: Floats, weight: Floats, start: float | None) -> tuple[Floats, Floats]:
    """The best top and start, 0 ≤ start ≤ top ≤ 1, of each row of `left` (G, n).

    The accuracy is linear in both. Where the best pair is not allowed, the best allowed one lies
    on the border, so all borders are tried.
    """
    done = 1.0 - left
    if start is not None:
        begin = np.full(len(left), float(start))
        return np.clip(_scaled(done, a - start * left, weight), start, 1.0), begin
    dd, dl, ll = (weight * done**2).sum(1), (weight * done * left).sum(1), (weight * left**2).sum(1)
    da, la = (weight * done * a).sum(1), (weight * left * a).sum(1)
    det = dd * ll - dl**2
    safe = det > 1e-12 * np.maximum(dd * ll, 1e-300)
    top = np.divide(da * ll - la * dl, det, out=np.full(len(left), np.nan), where=safe)
    begin = np.divide(la * dd - da * dl, det, out=np.full(len(left), np.nan), where=safe)
    mean = np.full(len(left), float((weight * a).sum() / weight.sum()))
    zero, one = np.zeros(len(left)), np.ones(len(left))
    pairs = [
        (np.clip(_scaled(done, a[None, :], weight), 0.0, 1.0), zero),
        (one, np.clip(_scaled(left, a - done, weight), 0.0, 1.0)),
        (mean, mean),
    ]
    allowed = safe & (begin >= 0) & (top <= 1) & (begin <= top)
    pairs.append((np.where(allowed, top, mean), np.where(allowed, begin, mean)))
    costs = [
        (weight * (t[:, None] * done + b[:, None] * left - a) ** 2).sum(axis=1) for t, b in pairs
    ]
    pick = np.argmin(costs, axis=0)
    rows = np.arange(len(left))
    tops, begins = (np.array([pair[k] for pair in pairs])[pick, rows] for k in (0, 1))
    return tops, begins


def _scaled(by: Floats, wanted: Floats, weight: Floats) -> Floats:
    """The factor of each row of `by` (G, n) that comes closest to what is wanted."""
    norm = (weight * by**2).sum(axis=1)
    product = (weight * by * wanted).sum(axis=1)
    return np.asarray(np.divide(product, norm, out=np.zeros(len(by)), where=norm > 0))


def fit_family(runs: Sequence[tuple[float, ArrayLike, ArrayLike]]) -> list[dict[str, float]]:
    """The levels of a family, smallest first, from (cost of an epoch, epochs, accuracies) of each.

    All begin where the smallest does: a network that knows nothing knows as little when it is
    larger. Costs are counted in that of the smallest.
    """
    if not runs:
        raise InputError("A family of learning curves needs the measurements of one level or more.")
    unit = runs[0][0]
    levels: list[dict[str, float]] = []
    if not all(np.isfinite(cost) and cost >= unit > 0 for cost, _, _ in runs):
        raise InputError(
            f"Costs {[cost for cost, _, _ in runs]} of a family must be positive, none below the "
            "first: an epoch of a larger network takes no less work."
        )
    start: float | None = None
    for cost, epochs, accuracy in runs:
        curve = fit_curve(epochs, accuracy, start=start)
        start = max(0.0, curve.top - curve.span) if start is None else start
        dearest = max([cost / unit, *(level["cost"] for level in levels)])
        levels.append({"top": curve.top, "span": curve.span, "scale": curve.scale,
                       "power": curve.power, "cost": dearest})  # fmt: skip
    return levels


def shipped_learning(
    models: Sequence[str] | None = None, *, pause_s: float = 0.0
) -> LearningCurves:
    """The learning curves that come with rota, of these models or of all."""
    known: Mapping[str, Any] = shipped("learning")["families"]
    names = chosen("model with learning curves", models, known)
    return learning_curves({name: known[name] for name in names}, pause_s=pause_s)


def learning_curves(
    families: Mapping[str, Mapping[str, Any]], *, pause_s: float = 0.0
) -> LearningCurves:
    """Families from a table: by name, the `epochs` of a job and its `levels`, smallest first."""
    counts = np.array([len(own["levels"]) for own in families.values()], np.int64)
    most = int(counts.max(initial=1))
    columns = {law: np.ones((len(families), most))
               for law in ("top", "span", "scale", "power", "cost")}  # fmt: skip
    for f, own in enumerate(families.values()):
        for law, column in columns.items():
            column[f, : counts[f]] = [level[law] for level in own["levels"]]
    epochs = np.array([own["epochs"] for own in families.values()], np.float64)
    return LearningCurves(
        names=tuple(families), epochs=epochs, levels=counts, pause_s=pause_s, **columns
    )
