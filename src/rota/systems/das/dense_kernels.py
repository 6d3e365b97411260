"""Layers of networks in float32, one row at a time; inner loops run along a row.

Weights are (in, out), the transpose of torch's.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from rota.jit import part

ZERO: Final = np.float32(0.0)
"""A plain 0.0 is a float64 and would turn float32 results into float64."""
ONE: Final = np.float32(1.0)
HALF: Final = np.float32(0.5)
EPS: Final = np.float32(1e-5)
"""What torch adds to a variance when it normalises."""
FLAT: Final = np.float32(8.0)
"""Beyond it tanh is ±1 in float32."""
# tanh(x) is about x·p(x²)/q(x²) up to there, within 4e-7; fitted by least squares of the relative
# error, reweighted until it was even. Of p and q the highest power first; q ends with 1.
P5: Final = np.float32(2.3508342623e-11)
P4: Final = np.float32(-1.4704117768e-08)
P3: Final = np.float32(9.8786257469e-06)
P2: Final = np.float32(2.9858581288e-03)
P1: Final = np.float32(1.2979219837e-01)
P0: Final = np.float32(9.9999998106e-01)
Q3: Final = np.float32(2.3720271166e-04)
Q2: Final = np.float32(2.4027908933e-02)
Q1: Final = np.float32(4.6312535872e-01)


@part
def copy(source: Any, out: Any) -> None:
    """out = source."""
    for o in range(out.size):
        out[o] = source[o]


@part
def add(source: Any, out: Any) -> None:
    """out += source."""
    for o in range(out.size):
        out[o] += source[o]


@part
def add_product(source: Any, weights: Any, out: Any) -> None:
    """out += source · weights, four inputs at a time, so that `out` is read and written less."""
    fours = source.size // 4
    for step in range(fours):
        i = 4 * step
        a, b, c, d = source[i], source[i + 1], source[i + 2], source[i + 3]
        first, second, third, last = weights[i], weights[i + 1], weights[i + 2], weights[i + 3]
        for o in range(out.size):
            out[o] += (a * first[o] + b * second[o]) + (c * third[o] + d * last[o])
    for i in range(4 * fours, source.size):
        a, first = source[i], weights[i]
        for o in range(out.size):
            out[o] += a * first[o]


@part
def dense(source: Any, weights: Any, bias: Any, out: Any) -> None:
    """out = source · weights + bias."""
    copy(bias, out)
    add_product(source, weights, out)


@part
def dot(one: Any, other: Any) -> Any:
    """The inner product; eight sums at a time, as one would wait for itself."""
    a, b, c, d, e, f, g, h = ZERO, ZERO, ZERO, ZERO, ZERO, ZERO, ZERO, ZERO
    eights = one.size // 8
    for step in range(eights):
        i = 8 * step
        a += one[i] * other[i]
        b += one[i + 1] * other[i + 1]
        c += one[i + 2] * other[i + 2]
        d += one[i + 3] * other[i + 3]
        e += one[i + 4] * other[i + 4]
        f += one[i + 5] * other[i + 5]
        g += one[i + 6] * other[i + 6]
        h += one[i + 7] * other[i + 7]
    for i in range(8 * eights, one.size):
        a += one[i] * other[i]
    return ((a + b) + (c + d)) + ((e + f) + (g + h))


@part
def cut(array: Any) -> None:
    """Raise what is below 0 to 0."""
    for o in range(array.size):
        array[o] = max(array[o], ZERO)


@part
def tanh_of(x: Any) -> Any:
    """The hyperbolic tangent in float32, without a call, so that loops are vectorised."""
    x = min(max(x, -FLAT), FLAT)
    s = x * x
    p = ((((P5 * s + P4) * s + P3) * s + P2) * s + P1) * s + P0
    return x * p / (((Q3 * s + Q2) * s + Q1) * s + ONE)


@part
def bend(array: Any) -> None:
    """array = tanh(array)."""
    for o in range(array.size):
        array[o] = tanh_of(array[o])


@part
def normalise(source: Any, scale: Any, shift: Any, out: Any) -> None:
    """Layer normalisation."""
    size = np.float32(source.size)
    mean, spread = ZERO, ZERO
    for o in range(source.size):
        mean += source[o]
    mean /= size
    for o in range(source.size):
        out[o] = source[o] - mean
    spread = ONE / np.sqrt(dot(out, out) / size + EPS)
    for o in range(source.size):
        out[o] = out[o] * spread * scale[o] + shift[o]


@part
def soften(array: Any) -> None:
    """Softmax."""
    most, total = array[0], ZERO
    for o in range(1, array.size):
        most = max(most, array[o])
    for o in range(array.size):
        array[o] = np.exp(array[o] - most)
        total += array[o]
    for o in range(array.size):
        array[o] /= total
