"""The table of properties by op, op_properties.csv: what TT-NN's ops have in common, and where each is its own.

`python tests/properties/op_properties.py` prints rows for ops that have none, as softmesh answers: compare them with
TT-NN before they go in. A word with a `?` is what softmesh does where nothing is known of TT-NN; `-` means that the
question does not arise.

takes    which of these arguments it has, whatever it calls them
place    of the results, operands in DRAM or L1 and no memory_config: `first` as the first operand, an operand's
         name, `each` as the operand it belongs to, `dram`, `l1 width`, `dram or l1 height` (by where the operands are)
shards   the same for operands cut by rows over two cores: `kept` in the same shards, or where else
asked    which memory configs are honoured: `any` (interleaved in DRAM or L1; by height, width, block), `interleaved`,
         `sharded`, or `none` (it writes in place)
layouts  of the first result, operands of floating point in TILE and in ROW_MAJOR; `refused` where they are not taken
result   `new` memory, a `view` that lies in its operand's (and is gone with it), or `in place`: one of its operands
output   what of an output tensor must be the result's: shape, dtype, layout, memory; `own`: an output in shards. In any
         case the result is the tensor that was given, at its address and in its memory config
changes  which of dtype, activation, program_config, compute_kernel_config, sub_core_grids, queue_id change values or
         dtypes. (Of a compute_kernel_config, numbers of lower fidelity are not modelled.)
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable
from pathlib import Path

from op_examples import names_with_examples
from op_observations import changes, default_place, honours, layouts, output, place_of_shards, result, takes

COLUMNS: dict[str, Callable[[str], str]] = {
    "takes": takes,
    "place": default_place,
    "shards": place_of_shards,
    "asked": honours,
    "layouts": layouts,
    "result": result,
    "output": output,
    "changes": changes,
}
_FILE = Path(__file__).with_suffix(".csv")


def table() -> dict[str, dict[str, str]]:
    with _FILE.open(newline="") as file:
        return {row.pop("op"): row for row in csv.DictReader(file)}


def observed(name: str) -> dict[str, str]:
    return {column: observe(name) for column, observe in COLUMNS.items()}


def skeleton(names: Iterable[str]) -> str:
    """Rows of these ops, every word with a question mark."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    for name in names:
        rows.writerow([name, *(word if word == "-" else f"{word}?" for word in observed(name).values())])
    return text.getvalue()


if __name__ == "__main__":
    known = table()
    print(skeleton(name for name in names_with_examples() if name not in known), end="")
