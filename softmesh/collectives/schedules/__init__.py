"""Schedules of collectives: the language (`language`), generators, checker, step executor, link traffic, chips.

`line_generators` makes the schedules along one line or ring, `grid_generators` those of a grid; `generators` is the
table with `schedule_for`. Nothing here knows tensors of TT-NN.
"""
