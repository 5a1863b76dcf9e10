"""One modelled clock: when each command of a run begins and ends, over hosts, queues, devices and links.

The host of a rank puts commands into queues, one after the other, and goes on; a blocking call waits for its end. In a
queue commands keep their order. A program begins when its queue gets to it, the worker cores of its sub-devices are
free on all its devices, and the links it sends over are; programs on other sub-devices, or on other chips, run beside
it. Transfers, and events that are recorded, wait for the programs before them in their queue; a queue that waits for
an event goes on when the queue that recorded it got there. Replayed commands are put into their queue by the device
itself: no host stands between them. What the host reads after a replay it works on before it goes on. A message is
received when it was sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from softmesh.cost.launches import launch_seconds
from softmesh.cost.laws.dispatches import TURN_AROUND_US
from softmesh.cost.recorded_run import Form, Recorded, RecordedRun
from softmesh.kinds import Kind
from softmesh.systems.chip import Chip

_REPLAY = 5e-6  # the host's time for a replay
_TURN_AROUND = TURN_AROUND_US * 1e-6
_ROUND_TRIP = 2e-6  # until the host sees that something has ended
_MOST_SUB_DEVICES = 4


class Times(NamedTuple):
    """Of a command that ran: which one it is, of which run, and of which replay."""

    run: int
    command: int  # index in the run
    issued: float
    start: float
    end: float
    after: int  # index in the list of times; -1: none
    trace: int | None
    session: int | None


class Clocked(NamedTuple):
    times: list[Times]
    at_command: list[list[tuple[float, int]]]  # of each run: the host's time, and how many times there are, after each
    seconds: float


class _Place(NamedTuple):
    """A moment that something waits for, and the command that made it so late."""

    time: float
    by: int


_START = _Place(0.0, -1)


class _Group:
    """Cores of some chips that commands take together; what runs again and again on the same ones asks only here."""

    def __init__(self, places: npt.NDArray[np.intp], parts: tuple[int, ...]) -> None:
        self.places = places
        self.parts = parts
        self.busy = _START


class _Queue:
    def __init__(self) -> None:
        self.next = _START  # when its next command may begin
        self.done = _START  # when all so far has ended


class Clock:
    def __init__(self, runs: Sequence[RecordedRun]) -> None:
        self._runs = runs
        self.times: list[Times] = []
        at: dict[tuple[int, int], int] = {}  # ranks have the chips of one machine in common; elastic ones are their own
        self._places = [
            np.array(
                [at.setdefault((run.rank if run.machine is None else -1, chip), len(at)) for chip in run.chips],
                dtype=np.intp,
            )
            for run in runs
        ]
        self._workers = np.zeros((len(at), _MOST_SUB_DEVICES))
        self._worked = np.full((len(at), _MOST_SUB_DEVICES), -1, dtype=np.int64)  # who made them busy
        self._links = [np.zeros(len(run.links)) for run in runs]
        self._sent_by = [np.full(len(run.links), -1, dtype=np.int64) for run in runs]
        self._queues: dict[tuple[int, int, int], _Queue] = {}  # by run, mesh and queue
        self._events: dict[tuple[int, int], _Place] = {}
        self._messages: dict[object, list[_Place]] = {}
        self._hosts = [_START for _ in runs]
        self._traces: dict[tuple[int, int, int], list[int]] = {}  # by run, mesh and trace: indices of commands
        self._capturing: dict[tuple[int, int, int], int] = {}  # by run, mesh and queue: the trace
        self._sessions = 0
        self._unread: set[int] = set()  # runs whose latest replay the host has not read from
        self._groups: dict[int, _Group] = {}  # by the id of a form
        self._group_by_key: dict[tuple[tuple[int, ...], tuple[int, ...]], _Group] = {}
        self._hot: _Group | None = None

    def go(self) -> Clocked:
        """Ranks take turns: one that wants a message waits until its sender got there."""
        after: list[list[tuple[float, int]]] = [[] for _ in self._runs]
        waits = True  # whether a message that is not there is waited for
        while any(len(after[number]) < len(run.commands) for number, run in enumerate(self._runs)):
            before = sum(map(len, after))
            for number in range(len(self._runs)):
                self._go_on(number, after[number], waits)
            waits = sum(map(len, after)) > before  # where nobody can go on, the message was sent before all this
        ends = [one.end for one in self.times]
        return Clocked(self.times, after, max([0.0, *ends, *(host.time for host in self._hosts)]))

    def _go_on(self, number: int, after: list[tuple[float, int]], waits: bool) -> None:
        commands = self._runs[number].commands
        for index in range(len(after), len(commands)):
            command = commands[index]
            if waits and any(not self._messages.get(channel) for channel in command.receives):
                return
            self._take(number, index, command)
            after.append((self._hosts[number].time, len(self.times)))
            waits = True

    # -- one command -------------------------------------------------------------------------------

    def _take(self, run: int, index: int, command: Recorded) -> None:
        form = command.form
        if command.is_captured:
            where = (run, form.mesh, command.queue)
            if form.kind is Kind.CAPTURE_BEGIN:
                self._capturing[where] = command.trace or 0
            elif not form.kind.is_note:
                self._traces.setdefault((run, form.mesh, self._capturing.get(where, 0)), []).append(index)
            return
        if form.kind.is_note:
            now = self._hosts[run]
            self._note(run, index, now.time, now.time, now.time, now.by)
        elif form.kind is Kind.REPLAY:
            self._replay(run, index, command)
        elif form.kind is Kind.RECORD_EVENT:
            queue = self._queue(run, command)
            self._events[run, command.event or 0] = self._later(queue.done, queue.next, self._hosts[run])
        elif form.kind is Kind.WAIT_FOR_EVENT:
            queue = self._queue(run, command)
            queue.next = self._later(queue.next, self._events.get((run, command.event or 0), _START))
        elif form.kind in (Kind.FINISH, Kind.SYNCHRONIZE_EVENT):
            self._host_waits(run, command)
        else:
            self._launch(run, index, command)

    def _launch(self, run: int, index: int, command: Recorded) -> None:
        host = self._hosts[run]
        issued = host.time + launch_seconds(self._chip(run, command.form))
        self._hosts[run] = _Place(issued, host.by)
        place = self._run(run, index, command, _Place(issued, host.by), issued)
        if command.is_blocking:
            seen = place.time + _ROUND_TRIP
            if command.form.kind is Kind.HOST_READ and run in self._unread:
                self._unread.remove(run)
                seen += _TURN_AROUND
            self._hosts[run] = self._later(self._hosts[run], _Place(seen, place.by))

    def _run(
        self,
        run: int,
        index: int,
        command: Recorded,
        ready: _Place,
        issued: float,
        trace: int | None = None,
        session: int | None = None,
    ) -> _Place:
        """Give it its times; its end."""
        form, queue = command.form, self._queue(run, command)
        begin = self._later(queue.next, ready)
        for channel in command.receives:
            sent = self._messages.get(channel)
            if sent:
                begin = self._later(begin, sent.pop(0))
        if form.kind.is_host_transfer:
            begin = self._later(begin, queue.done)
            end = begin.time + form.cost.seconds * form.writers
            by = self._note(run, index, issued, begin.time, end, begin.by)
            queue.next = queue.done = _Place(end, by)
            return queue.done
        begin = self._cores_free(run, form, begin)
        begin = self._links_free(run, form, begin)
        end = begin.time + form.cost.seconds
        by = self._note(run, index, issued, begin.time, end, begin.by, trace, session)
        done = _Place(end, by)
        self._take_cores(run, form, end, by)
        self._take_links(run, form, end, by)
        queue.next = self._later(queue.next, _Place(begin.time, begin.by))
        queue.done = self._later(queue.done, done)
        for channel in command.sends:
            self._messages.setdefault(channel, []).append(done)
        return done

    def _replay(self, run: int, index: int, command: Recorded) -> None:
        host = self._hosts[run]
        issued = host.time + _REPLAY
        self._hosts[run] = _Place(issued, host.by)
        number, end = self._sessions, _Place(issued, host.by)
        self._sessions += 1
        self._unread.add(run)
        for recorded in self._traces.get((run, command.form.mesh, command.trace or 0), ()):
            one = self._runs[run].commands[recorded]
            if one.queue != command.queue:
                one = one._replace(queue=command.queue)
            end = self._run(run, recorded, one, _Place(issued, host.by), issued, command.trace, number)
        queue = self._queue(run, command)
        end = self._later(end, queue.done)
        if command.is_blocking:
            self._hosts[run] = self._later(self._hosts[run], _Place(end.time + _ROUND_TRIP, end.by))

    def _host_waits(self, run: int, command: Recorded) -> None:
        waited = self._queue(run, command).done
        if command.event is not None:
            waited = self._events.get((run, command.event), _START)
        self._hosts[run] = self._later(self._hosts[run], _Place(waited.time + _ROUND_TRIP, waited.by))

    # -- what commands wait for ----------------------------------------------------------------------

    def _group_of(self, run: int, form: Form) -> _Group:
        known = self._groups.get(id(form))
        if known is None:
            parts = form.sub_devices or form.wait
            where = (self._places[run][list(form.places)], parts)
            key = (tuple(where[0].tolist()), parts)
            known = self._group_by_key.setdefault(key, _Group(*where))
            self._groups[id(form)] = known
        return known

    def _cores_free(self, run: int, form: Form, begin: _Place) -> _Place:
        group = self._group_of(run, form)
        if group is not self._hot:
            self._cool_down()
            busy = self._workers[group.places][:, group.parts]
            latest = int(busy.argmax()) if busy.size else 0
            by = int(self._worked[group.places][:, group.parts].flat[latest]) if busy.size else -1
            group.busy = _Place(float(busy.flat[latest]) if busy.size else 0.0, by)
        return group.busy if group.busy.time > begin.time else begin

    def _take_cores(self, run: int, form: Form, end: float, by: int) -> None:
        group = self._group_of(run, form)
        group.busy = _Place(end + launch_seconds(self._chip(run, form), is_traced=True), by)
        self._hot = group

    def _cool_down(self) -> None:
        """Write down until when the cores are busy that the last commands ran on."""
        hot = self._hot
        if hot is not None:
            for part in hot.parts:
                self._workers[hot.places, part] = hot.busy.time
                self._worked[hot.places, part] = hot.busy.by
            self._hot = None

    def _links_free(self, run: int, form: Form, begin: _Place) -> _Place:
        if form.traffic is None:
            return begin
        links = [link for link, _ in form.traffic.bytes_by_link]
        busy = self._links[run][links]
        latest = int(busy.argmax()) if links else 0
        if not links or busy[latest] <= begin.time:
            return begin
        return _Place(float(busy[latest]), int(self._sent_by[run][links][latest]))

    def _take_links(self, run: int, form: Form, end: float, by: int) -> None:
        if form.traffic is not None:
            links = [link for link, _ in form.traffic.bytes_by_link]
            self._links[run][links] = end
            self._sent_by[run][links] = by

    # -- small things --------------------------------------------------------------------------------

    def _note(
        self,
        run: int,
        index: int,
        issued: float,
        start: float,
        end: float,
        after: int,
        trace: int | None = None,
        session: int | None = None,
    ) -> int:
        self.times.append(Times(run, index, issued, start, end, after, trace, session))
        return len(self.times) - 1

    def _queue(self, run: int, command: Recorded) -> _Queue:
        key = (run, command.form.mesh, command.queue)
        known = self._queues.get(key)
        if known is None:
            known = self._queues[key] = _Queue()
        return known

    def _chip(self, run: int, form: Form) -> Chip:
        return self._runs[run].meshes[form.mesh].chip

    @staticmethod
    def _later(latest: _Place, *others: _Place) -> _Place:
        for place in others:
            if place.time > latest.time:
                latest = place
        return latest
