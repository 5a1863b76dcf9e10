"""A plan as a program: `plan_calls.py` writes down the calls, with the collectives between them; `plain_steps.py` and
`plain_ops.py` say in public ops what unified ops do with their own; `layer_functions.py` finds what repeats, and
`plan_source.py` prints it all as a Python file. `followed_plan.py` runs a program by a plan without one.
"""
