"""A plan, explained: `plan_rows.py` its ops and tensors as rows, `bottlenecks.py` what it waits for, `alternatives.py`
what lost and why, and what more of something would change, which `planned_anew.py` searches; `own_ops.py` what it does
without, `plan_explanation.py` all of that as a value with a text.
"""
