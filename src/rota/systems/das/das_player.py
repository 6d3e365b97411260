"""DAS as published when deployed: one compiled call per round, without torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from rota.systems.das.agent_kernels import (
    Agents,
    AgentScratch,
    EncoderWeights,
    HearingWeights,
    OrderingWeights,
    PlacingWeights,
)
from rota.systems.das.machine_kernels import MACHINE
from rota.systems.das.ordering_head import positions
from rota.systems.das.placement_head import WalkHead
from rota.systems.das.placing_kernels import ATTENTION
from rota.systems.das.play_kernels import play_two_agents
from rota.systems.das.seen_kernels import PAIR
from rota.systems.das.walk import FORMS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from torch import Tensor, nn

    from rota.envs.book import Book
    from rota.envs.view import View
    from rota.systems.das.das_network import TwoAgents
    from rota.systems.das.order_place_lens import OrderPlaceLens
    from rota.systems.das.ordering_head import Communicate, OrderingHead


class TwoAgentsPlayer:
    """Writes each round in one call, as the lens and the network would edit by edit.

    Logits differ from torch's by rounding, so an action may differ where two score the same.
    """

    def __init__(self, network: TwoAgents, lens: OrderPlaceLens) -> None:
        self._agents = weights_of(network, lens.window)
        self._scratch = scratch_for(self._agents, lens)
        self._informed, self._run = lens.informed, lens.run
        self.logits = self._scratch.logits
        """The logits (A,) of the last edit for which there was a choice."""

    def __call__(self, view: View, book: Book, most_edits: int) -> bool:
        """Write the round that `lens.open` has begun; False if it does not end in `most_edits`."""
        ended: bool = self._run(
            play_two_agents, view, book, self._agents, self._scratch, self._informed, most_edits
        )
        return ended


def weights_of(network: TwoAgents, window: int) -> Agents:
    """A network's weights as kernels read them."""
    with torch.no_grad():
        return Agents(
            encoder_of(network.job), encoder_of(network.machine),
            hearing_of(network.hear, network.end.in_features),
            ordering_of(network.order, network.end, window), placing_of(network),
        )  # fmt: skip


def encoder_of(encoder: nn.Sequential) -> EncoderWeights:
    """Those of an encoder."""
    return EncoderWeights(*_linear(encoder[0]), *_linear(encoder[2]))


def hearing_of(hear: Communicate | None, width: int) -> HearingWeights:
    """Those by which jobs hear of machines."""
    if hear is None:
        none, nothing = _plain(torch.zeros(0, width)), _plain(torch.zeros(0))
        return HearingWeights(none, nothing, none, none, nothing)
    gate, bias = _linear(hear.gate)
    return HearingWeights._make([*_linear(hear.message[0]), *_split(gate, width, width), bias])


def ordering_of(order: OrderingHead, end: nn.Linear, window: int) -> OrderingWeights:
    """Those of the ordering agent; its layers are stacked."""
    blocks: Sequence[Any] = list(order.blocks)
    layers = [
        (
            *_norm(block.before), *_linear(block.mix), *_linear(block.unite),
            *_norm(block.think[0]), *_linear(block.think[1]), *_linear(block.think[3]),
        )
        for block in blocks
    ]  # fmt: skip
    stacked = [np.stack(each) for each in zip(*layers, strict=True)]
    waves = positions(torch.arange(window), end.in_features, torch.float32)
    return OrderingWeights._make([
        blocks[0].heads, _plain(waves), *stacked, *_norm(order.norm), *_row(order.logit),
        *_row(end),
    ])  # fmt: skip


def placing_of(network: TwoAgents) -> PlacingWeights:
    """Those of the placement agent."""
    head, width = network.place, network.end.in_features
    none, nothing = _plain(torch.zeros(0, width)), _plain(torch.zeros(0))
    fit, fit_bias = _linear(network.fit[0])
    own = *_split(fit, PAIR, MACHINE, width), fit_bias, *_row(network.fit[2])
    shrink = width**-0.5
    if isinstance(head, WalkHead):
        step = head.query.weight.double().T @ head.key.weight.double() * shrink
        length = torch.arange(head.terms + 1, dtype=torch.float64)
        decay = head.decay.double()
        fade = decay ** (length / 2) * ((1 - decay) / width).sqrt()
        pair, pair_bias = _linear(head.pair.machine)
        return PlacingWeights._make([
            FORMS.index(head.form), float(head.noise), _plain(head.pair.job.weight.T), pair, none,
            pair_bias, *_linear(head.pair.out), _plain(step), _plain(head.start.weight[0]),
            _plain(fade), none, nothing, *own,
        ])  # fmt: skip
    pair, pair_bias = _linear(head.key.machine)
    query, query_bias = _linear(head.query)
    return PlacingWeights._make([
        ATTENTION, 1.0, _plain(head.key.job.weight.T), *_split(pair, width, 2), pair_bias,
        *_linear(head.key.out), none, nothing, nothing, _plain(query * shrink),
        _plain(query_bias * shrink), *own,
    ])  # fmt: skip


def scratch_for(agents: Agents, lens: OrderPlaceLens) -> AgentScratch:
    """Memory for these agents."""
    W, K, T, A = lens.window, lens.machines, lens.past, lens.actions
    told, D = agents.job.first.shape
    F = agents.place.fade.size * D

    def floats(*shape: int) -> NDArray[np.float32]:
        return np.zeros(shape, np.float32)

    raw = np.full((2 + T, K, MACHINE), np.nan, np.float32)  # equal to no description
    return AgentScratch(
        np.zeros(W, np.int64), floats(told), floats(W, D), floats(W, D), raw, floats(2 + T, K, D),
        floats(2 + T, K, D), floats(MACHINE), floats(K, PAIR), floats(T, K),
        np.zeros((T, K), np.bool_), np.zeros(T, np.bool_), floats(2 * D), floats(D), floats(D),
        floats(3 * D), floats(2 * D), floats(W, 3 * D), floats(D, W), floats(max(W, K)),
        floats(K, D), floats(D, K), floats(K, K), floats(2, K), floats(1 + T, F),
        np.zeros((1 + T, 1 + T)), np.zeros((T, T)), np.zeros(T), np.zeros((K, T)), np.zeros(K),
        np.zeros(T, np.int64), floats(A), np.zeros(A, np.bool_),
    )  # fmt: skip


def _plain(array: Tensor | NDArray[Any]) -> NDArray[np.float32]:
    """A copy of its own, row by row."""
    values = array.detach().numpy() if isinstance(array, torch.Tensor) else array
    return np.array(values, np.float32, order="C")


def _split(weights: NDArray[np.float32], *sizes: int) -> list[NDArray[np.float32]]:
    """Weights (in, out) by parts of the input."""
    return [_plain(part) for part in np.split(weights, np.cumsum(sizes)[:-1])]


def _linear(layer: Any) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Weights (in, out) and bias (out,) of a layer."""
    return _plain(layer.weight.T), _plain(layer.bias)


def _row(layer: Any) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Weights (in,) and bias (1,) of a layer with one output."""
    return _plain(layer.weight[0]), _plain(layer.bias)


def _norm(layer: Any) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Scale and shift of a layer that normalises."""
    return _plain(layer.weight), _plain(layer.bias)
