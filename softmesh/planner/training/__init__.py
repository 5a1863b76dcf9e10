"""Training steps, captured: `loss.backward()` and `optimizer.step()` become ops of TT-NN like those before them.

`gradient_tape.py` remembers what was computed of parameters and goes back through it, by the rules that ops state and
those of `composite_ops.py`; `optimizer_steps.py` says what an optimizer does to each parameter.
"""
