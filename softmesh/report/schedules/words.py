"""Steps and sends in words."""

from __future__ import annotations

from collections import Counter

from softmesh.collectives.schedule import Action
from softmesh.report.schedules.story import Story, Told


def sentence(story: Story, told: Told) -> str:
    send = told.send
    what = f"chunk {story.chunk(send.slot)}"
    if story.adds:
        whole = story.whole[send.slot]
        if told.carried >= whole > 1:
            what = f"the complete {what}"
        elif told.carried > 1:
            what = f"its sum of {what} ({told.carried} of {whole} contributions)"
        else:
            what = f"its own {what}"
    return f"{story.device(send.sender)} sends {what} to {story.device(send.receiver)}, {_reception(story, told)}"


def _reception(story: Story, told: Told) -> str:
    send = told.send
    where = "" if send.target == send.slot else f" as chunk {story.chunk(send.target)}"
    if send.action is Action.STORE:
        return f"which {'stores it over what it had' if told.before else 'stores it'}{where}"
    own = "its own" if told.before == 1 else f"it to its sum of {told.before}"
    whole = story.whole[send.target]
    ready = "complete now" if told.after >= whole else f"{told.after} of {whole} now"
    return f"which adds {own}{where}: {ready}" if told.before else f"which stores it{where}"


def summary(story: Story, step: int) -> str:
    """A step in one line: how many sends, and what becomes of them."""
    actions = Counter(send.action for send in story.schedule.steps[step])
    count = sum(actions.values())
    if not count:
        return "nothing is sent"
    senders = len({send.sender for send in story.schedule.steps[step]})
    who = f"{senders} {'device sends' if senders == 1 else 'devices send'}"
    what = f"{count} {'chunk' if count == 1 else 'chunks'}"
    if len(actions) == 2:
        fate = f"{actions[Action.ADD]} added, {actions[Action.STORE]} stored"
    elif Action.ADD in actions:
        fate = "added where they arrive" if count > 1 else "added where it arrives"
    else:
        fate = "stored where they arrive" if count > 1 else "stored where it arrives"
    return f"{who} {what}, {fate}"
