"""Plans as pictures and pages: `cut_glyph.py` a tensor as it is cut, `plan_svg.py` a whole plan, `plan_page.py` HTML,
`plan_terminal.py` tables in a terminal; `shown_plans.py` lends them to the planner.
"""
