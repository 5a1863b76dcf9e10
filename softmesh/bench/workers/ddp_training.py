"""The training of `softmesh bench train` as PyTorch DDP: gloo processes on this machine, each with a share of the rows.

`python ddp_training.py PROCESSES FOLDER`: says {"ready": version} once all are there, and answers {"repeat": n} with
the seconds of a step and its loss. The folder holds weights and batch, as `work.npz`, and the size, as `size.json`.
"""

from __future__ import annotations

import json
import sys
import time
from datetime import timedelta
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from order_loop import say  # type: ignore[import-not-found]
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(0, str(Path(__file__).parents[1]))
from torch_gpt import Size, TorchGPT, TorchTraining  # type: ignore[import-not-found]

_LAST = -1
_DEADLINE = timedelta(seconds=100)


def work(rank: int, processes: int, folder: str) -> None:
    torch.set_num_threads(1)
    store = dist.FileStore(str(Path(folder) / "meeting"), processes)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=processes, timeout=_DEADLINE)
    training = share_of(rank, processes, Path(folder))
    training.step()
    if rank == 0:
        say(ready=f"torch {torch.__version__}, gloo, {processes} processes")
    while True:
        count = torch.tensor(next_order() if rank == 0 else 0)
        dist.broadcast(count, 0)
        if int(count) == _LAST:
            break
        start = time.perf_counter()
        for _ in range(int(count)):
            loss = training.step()
        dist.barrier()
        if rank == 0:
            say(seconds=(time.perf_counter() - start) / int(count), loss=loss)
    dist.destroy_process_group()


def share_of(rank: int, processes: int, folder: Path) -> TorchTraining:
    size = Size(**json.loads((folder / "size.json").read_text()))
    held = np.load(folder / "work.npz")
    model = TorchGPT(size)
    model.load_state_dict({name: torch.from_numpy(held[name]) for name in model.state_dict()})
    rows = size.rows // processes
    own = slice(rank * rows, (rank + 1) * rows)
    ids, targets = (torch.from_numpy(held[name])[own] for name in ("batch.ids", "batch.targets"))
    return TorchTraining(DistributedDataParallel(model), ids, targets)


def next_order() -> int:
    line = sys.stdin.readline()
    return int(json.loads(line)["repeat"]) if line else _LAST


if __name__ == "__main__":
    count, place = int(sys.argv[1]), sys.argv[2]
    context = mp.get_context("spawn")
    others = [context.Process(target=work, args=(rank, count, place)) for rank in range(1, count)]
    for process in others:
        process.start()
    try:
        work(0, count, place)
    finally:
        for process in others:
            process.join(timeout=10)
            process.kill()
