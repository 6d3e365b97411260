"""Checkpoints: what was saved is what is read, and every bad file is told apart."""

from __future__ import annotations

import json
import pickle
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from safetensors.numpy import save
from toy_games import KINDS, Small, Worth

from rota.errors import CheckpointError, TrainingError
from rota.learn import checkpoint
from rota.learn.checkpoint import About, weights_of

if TYPE_CHECKING:
    from pathlib import Path

ABOUT = About(system="toy", lens={"name": "toy", "window": 3}, network={"actions": KINDS}, step=7)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    torch.manual_seed(1)
    path = tmp_path / "toy.ckpt"
    checkpoint.save(path, ABOUT, weights_of(Small(KINDS)))
    return path


def test_what_was_saved_is_what_is_read(file: Path) -> None:
    torch.manual_seed(1)
    first, second = Small(KINDS), Small(KINDS)
    found = checkpoint.load(file, lens="toy", system="toy")
    found.fill(second)
    assert found.about == ABOUT
    for a, b in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(a, b)
    assert [path.name for path in file.parent.iterdir()] == ["toy.ckpt"]  # no part left behind


def test_a_critic_is_kept_apart_and_a_policy_does_without(tmp_path: Path) -> None:
    path, critic = tmp_path / "both.ckpt", Worth()
    checkpoint.save(path, ABOUT, weights_of(Small(KINDS), critic))
    found = checkpoint.load(path)
    found.player().fill(Small(KINDS))
    other = Worth()
    found.critic().fill(other)
    assert torch.equal(critic.value.weight, other.value.weight)


def test_reads_files_in_which_the_critic_was_part_of_the_network(tmp_path: Path) -> None:
    path = tmp_path / "old.ckpt"
    old = weights_of(Small(KINDS)) | weights_of(Worth())
    checkpoint.write(path, {**asdict(ABOUT), "format": 1}, old)
    found = checkpoint.load(path)
    found.player().fill(Small(KINDS))
    found.critic().fill(Worth())
    state = {f"weights.{name}": array for name, array in old.items()} | {"adam.0.step": np.ones(1)}
    checkpoint.write(path, {"format": 1}, state)
    names = checkpoint.read(path)[1].keys()
    assert {"weights.critic.value.bias", "weights.body.bias", "adam.0.step"} <= names


def test_names_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no such checkpoint"):
        checkpoint.load(tmp_path / "none.ckpt")


def test_never_opens_a_pickle(tmp_path: Path) -> None:
    bare, zipped = tmp_path / "bare.ckpt", tmp_path / "zipped.ckpt"
    bare.write_bytes(pickle.dumps({"weights": [1.0]}))
    torch.save({"weights": torch.ones(3)}, zipped)
    for path in (bare, zipped):
        with pytest.raises(CheckpointError, match="a pickle"):
            checkpoint.load(path)


@pytest.mark.parametrize("keep", [0, 5, 8, 9, 200, -1])
def test_notices_a_truncated_file(file: Path, keep: int) -> None:
    file.write_bytes(file.read_bytes()[:keep])
    with pytest.raises(CheckpointError, match=r"truncated|empty|no checkpoint"):
        checkpoint.load(file)


def test_notices_a_single_flipped_bit_in_the_weights_or_in_what_is_said_of_them(
    file: Path,
) -> None:
    whole = file.read_bytes()
    header = 8 + int.from_bytes(whole[:8], "little")
    step = whole.index(b'step\\": 7') + 8
    for at in (step, header, (header + len(whole)) // 2, len(whole) - 1):
        bad = bytearray(whole)
        bad[at] ^= 1
        file.write_bytes(bad)
        with pytest.raises(CheckpointError, match=r"toy\.ckpt: .* is damaged: .*; copy or train"):
            checkpoint.load(file)
    file.write_bytes(whole)
    assert checkpoint.load(file).about == ABOUT


def test_reads_files_of_versions_that_wrote_no_checksum(file: Path) -> None:
    found = checkpoint.load(file)
    text = json.dumps(asdict(ABOUT))
    file.write_bytes(save(dict(found.weights), {"rota": text}))
    assert checkpoint.load(file).digest == found.digest


@pytest.mark.parametrize("content", [b"hello, this is a text", b"\x00" * 64, b"[model]\nname = 1"])
def test_notices_a_file_of_another_kind(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "other.ckpt"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match="no checkpoint"):
        checkpoint.load(path)


def test_notices_weights_that_say_nothing_of_themselves(tmp_path: Path) -> None:
    path = tmp_path / "bare.ckpt"
    for metadata in (None, {"rota": "not json"}, {"rota": "[1]"}, {"other": "{}"}):
        path.write_bytes(save({"a": np.ones(3)}, metadata))
        with pytest.raises(CheckpointError, match="not what they are for"):
            checkpoint.load(path)
    path.write_bytes(save({"a": np.ones(3)}, {"rota": json.dumps({"format": 1, "lens": {}})}))
    with pytest.raises(CheckpointError, match="says of itself is wrong"):
        checkpoint.load(path)


def test_refuses_another_format_and_says_which(file: Path) -> None:
    checkpoint.write(file, {**asdict(ABOUT), "format": 99, "rota": "9.9"}, {"a": np.ones(1)})
    with pytest.raises(CheckpointError, match=r"format 99 \(rota 9\.9\)"):
        checkpoint.load(file)


def test_refuses_another_lens_or_system(file: Path) -> None:
    with pytest.raises(CheckpointError, match="lens 'toy', not 'dl2'"):
        checkpoint.load(file, lens="dl2")
    with pytest.raises(CheckpointError, match="belongs to 'toy', not 'dl2'"):
        checkpoint.load(file, system="dl2")


def test_refuses_weights_that_are_not_finite(tmp_path: Path) -> None:
    path = tmp_path / "nan.ckpt"
    checkpoint.save(path, ABOUT, {"a": np.array([1.0, np.nan])})
    with pytest.raises(CheckpointError, match="not finite"):
        checkpoint.load(path)


def test_refuses_missing_foreign_and_misshapen_weights(file: Path) -> None:
    whole = checkpoint.load(file)
    less = {name: array for name, array in whole.weights.items() if name != "body.bias"}
    with pytest.raises(CheckpointError, match=r"lacks 'body\.bias'"):
        replace(whole, weights=less).fill(Small(KINDS))
    with pytest.raises(CheckpointError, match="also holds 'more'"):
        replace(whole, weights={**whole.weights, "more": np.ones(1)}).fill(Small(KINDS))
    with pytest.raises(CheckpointError, match=r"logits\.weight.*shape"):
        whole.fill(Small(KINDS + 1))


def test_a_failed_write_leaves_the_old_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    before = file.read_bytes()
    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(TrainingError, match=r"toy\.ckpt: No space left .* before is untouched"):
        checkpoint.save(file, replace(ABOUT, step=8), {"a": np.ones(3)})
    assert file.read_bytes() == before
    assert len(list(file.parent.iterdir())) == 1
