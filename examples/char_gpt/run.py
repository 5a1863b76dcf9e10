"""A character-level GPT, trained in several parallel forms whose losses lie on each other.

    softmesh run examples/char_gpt/run.py
    softmesh run examples/char_gpt/run.py --steps 50 --forms "1 device" "TP 8" --plot losses.svg

Every form starts from the same weights and sees the same batches. Written out: a table of losses, how far each form
strays from one device, and, with --plot, their curves.
"""

import argparse
import sys
import time
from functools import partial
from pathlib import Path

from tiny_gpt.curves import Curve, drawn, table
from tiny_gpt.forms import FORMS, Plan, losses
from tiny_gpt.model import Shape
from tiny_gpt.ranks import PIPELINE, pipelined
from tiny_gpt.text import Text

from softmesh.progress import tracked

NAMES = [*(form.name for form in FORMS), PIPELINE]
TOLERANCE = 1e-4  # of a loss: each form rounds a little differently, at every step


def main() -> int:
    parser = argparse.ArgumentParser(description="A GPT trained in several parallel forms.")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--forms", nargs="+", choices=NAMES, metavar="FORM")
    parser.add_argument("--plot", type=Path, help="an SVG file for the curves")
    given = parser.parse_args()
    if given.steps < 1:
        parser.error(f"--steps must be at least 1, got {given.steps}")
    if given.plot and (given.plot.is_dir() or not given.plot.parent.is_dir()):
        parser.error(f"--plot must be a file in a folder that exists, got {given.plot}")
    text = Text()
    shape, plan = Shape(text.vocabulary), Plan(steps=given.steps)
    ways = {form.name: partial(losses, form, text, shape, plan) for form in FORMS}
    ways[PIPELINE] = partial(pipelined, plan)
    curves = []
    for name in tracked(given.forms or NAMES, "training in each form"):
        began = time.perf_counter()
        seen = list(ways[name]())
        curves.append(Curve(name, seen, time.perf_counter() - began))
        print(f"{name}: {plan.steps} steps in {curves[-1].seconds:.0f} s", file=sys.stderr)
    print(table(curves))
    if given.plot:
        given.plot.write_text(drawn(curves), encoding="utf-8")
        print(f"Curves: {given.plot}")
    worst = max(curve.strays_from(curves[0]) for curve in curves)
    print(f"No loss is more than {worst:.1e} away from that of {curves[0].name}.")
    if not worst <= TOLERANCE:
        print(f"run.py: the forms do not train alike: no loss may stray by {TOLERANCE:.0e}.", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
