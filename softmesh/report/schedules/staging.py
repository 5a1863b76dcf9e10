"""Which stage suits a story."""

from __future__ import annotations

from softmesh.report.schedules.circle import circle_stage
from softmesh.report.schedules.grid import grid_stage
from softmesh.report.schedules.stage import Stage
from softmesh.report.schedules.story import Story


def staged(story: Story) -> Stage:
    is_round = story.is_ring and story.schedule.devices > 2
    return circle_stage(story) if is_round else grid_stage(story)
