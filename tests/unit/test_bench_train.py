"""`softmesh bench train` trains what it says, checks every loss and shows it; speed itself is not tested."""

from __future__ import annotations

import json

import pytest
import torch

from softmesh.bench import train as bench
from softmesh.bench.peer_process import PeerMissing
from softmesh.bench.torch_gpt import Size, TorchGPT
from softmesh.bench.train import DDP, FORMS, TORCH, MeshTraining, batch_of, on_mesh, torch_weights

SIZE = Size(features=32, blocks=1, tokens=32, rows=8)


class AnotherPeer:
    """Stands in for the processes of DDP, whose start takes long."""

    version = "a peer"

    def __init__(self, *work: object) -> None: ...
    def __enter__(self) -> AnotherPeer:
        return self

    def __exit__(self, *_: object) -> None: ...
    def run(self, repetitions: int) -> float:
        return 0.5 * repetitions


class MissingPeer(AnotherPeer):
    def __enter__(self) -> AnotherPeer:
        raise PeerMissing("not today")


def test_torch_gets_the_weights_of_the_mesh_and_finds_the_same_loss(idle_machine):
    model = TorchGPT(SIZE)
    model.load_state_dict(torch_weights(SIZE))
    ids, targets = batch_of(SIZE)
    with on_mesh(1, 1) as mesh:
        found = MeshTraining(mesh, SIZE, (ids, targets)).step()
    assert found == pytest.approx(float(model(ids.long(), targets.long()).detach()), abs=1e-5)


def test_the_table_has_every_form_beside_its_peers(idle_machine, monkeypatch, capsys):
    monkeypatch.setattr(bench, "_DdpProcess", AnotherPeer)
    assert bench.main(["--quick", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [row["peer"] for row in told["rows"]] == [TORCH, *FORMS, DDP]
    assert all(row["is_right"] for row in told["rows"])
    assert told["rows"][-1]["milliseconds"] == 500


def test_without_its_peer_the_run_says_so_and_goes_on(idle_machine, monkeypatch, capsys):
    monkeypatch.setattr(bench, "_DdpProcess", MissingPeer)
    assert bench.main(["--quick"]) == 0
    assert "left out: it does not run here (not today)" in capsys.readouterr().out


def test_a_loss_that_differs_from_torchs_fails_the_run(idle_machine, monkeypatch, capsys):
    monkeypatch.setattr(bench, "_DdpProcess", MissingPeer)
    monkeypatch.setattr(bench, "batch_of", lambda size: (torch.zeros(size.rows, size.tokens, dtype=torch.int32),) * 2)
    monkeypatch.setattr(bench, "torch_weights", lambda size: TorchGPT(size).state_dict())
    assert bench.main(["--quick"]) == 1
    assert "(!)" in capsys.readouterr().out
