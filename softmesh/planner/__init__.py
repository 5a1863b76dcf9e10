"""The planner: the best way to lay a model over a mesh.

`capture.py` runs a function without values and writes down its ops as a graph (`op_graph.py`); `op_strategies.py` has
every way to split each op over the axes of the mesh; a `placement_problem.py` is the choice among them, with the one
evaluator of what an assignment costs and holds; `placement_program.py` and `memory_rows.py` write it as an integer
program, `integer_program.py` finds the best one, `repeated_layers.py` lets it decide equal layers once,
`pipeline_search.py` finds the best stages, `system_search.py` looks at every mesh, `chosen_layout.py` is what comes
out, and `layout_plan.py` has the search as users call it. `relaid_copies.py` knows what only moves memory about,
`torch_modules.py` takes modules of torch, op by op as `torch_ops.py` says, `training/` a training step with its
backward passes, `program/` writes a plan as a file or has a program follow it, and `explanation/` says why it is so.
"""
