"""Traces: Python numbers that say where a recorded call writes"""

import torch
from catalogue import Told, mistake, right, unknowable

import softmesh as ttnn

TILES, ROWS = ttnn.TILE_LAYOUT, ttnn.ROW_MAJOR_LAYOUT
ONE_PLACE = (
    "All replays write to the place of the capture: one user gets the rows of all, or one position is rewritten."
)
AS_A_TENSOR = "Give places as a tensor that is written before each replay, or capture a trace for each place."


def cache_and_rows(mesh, users=4, length=64):
    cache = ttnn.zeros((users, 1, length, 32), ttnn.bfloat16, TILES, mesh)
    return cache, ttnn.from_torch(torch.ones(1, 1, 32, 32), ttnn.bfloat16, layout=TILES, device=mesh)


def captured(mesh, work, *given):
    work(*given)
    number = ttnn.begin_trace_capture(mesh, cq_id=0)
    work(*given)
    ttnn.end_trace_capture(mesh, number, cq_id=0)
    return number


def replay(mesh, number):
    ttnn.execute_trace(mesh, number, cq_id=0, blocking=True)


@mistake(Told.STRICT, "at is 1 by now, and was 0 when fill_cache", "batch_idx=0", symptom=ONE_PLACE, mend=AS_A_TENSOR)
def one_trace_fills_the_cache_of_all_users(mesh):
    cache, x = cache_and_rows(mesh)
    at = 0
    ttnn.fill_cache(cache, x, at)
    number = ttnn.begin_trace_capture(mesh, cq_id=0)
    ttnn.fill_cache(cache, x, at)
    ttnn.end_trace_capture(mesh, number, cq_id=0)
    for at in (0, 1):  # noqa: B007
        replay(mesh, number)


@mistake(Told.STRICT, "position is 6 by now, and was 5", "update_cache", symptom=ONE_PLACE, mend=AS_A_TENSOR)
def a_position_moves_on_and_the_trace_does_not(mesh):
    cache, x = cache_and_rows(mesh, users=1)

    def step(place):
        ttnn.update_cache(cache, x, place)

    position = 5
    number = captured(mesh, lambda: step(position))
    while position < 8:
        replay(mesh, number)
        position += 1


class Decoder:
    def __init__(self, mesh):
        self.mesh, self.position, self.number = mesh, 0, None
        self.cache, self.x = cache_and_rows(mesh)

    def step(self):
        ttnn.kv_cache.update_cache_for_token_(self.cache, self.x, update_index=self.position + 1)

    def run(self):
        if self.number is None:
            self.number = captured(self.mesh, self.step)
        replay(self.mesh, self.number)
        self.position += 1


@mistake(Told.STRICT, "position is 1 by now, and was 0", "update_index=1", symptom=ONE_PLACE, mend=AS_A_TENSOR)
def a_decoder_counts_its_position_in_an_attribute(mesh):
    decoder = Decoder(mesh)
    decoder.run()
    decoder.run()


@mistake(Told.STRICT, "user is 2 by now, and was 0", "batch_idx=0", symptom=ONE_PLACE, mend=AS_A_TENSOR)
def a_function_replays_one_trace_for_each_user(mesh):
    cache, x = cache_and_rows(mesh)
    traces = []

    def prefill(user):
        if not traces:
            traces.append(captured(mesh, lambda: ttnn.fill_cache(cache, x, batch_idx=user)))
        replay(mesh, traces[0])

    for user in (0, 2):
        prefill(user)


@mistake(Told.STRICT, "positions is [6] by now, and was [5]", symptom=ONE_PLACE, mend=AS_A_TENSOR)
def a_list_of_positions_is_changed_between_replays(mesh):
    positions, cache = [5], ttnn.zeros((1, 1, 64, 32), ttnn.bfloat16, TILES, mesh)
    shard = ttnn.create_sharded_memory_config(
        (32, 32), ttnn.CoreGrid(y=1, x=1), ttnn.ShardStrategy.HEIGHT, use_height_and_width_as_shard_shape=True
    )
    x = ttnn.from_torch(torch.ones(1, 1, 1, 32), ttnn.bfloat16, layout=TILES, device=mesh)
    x = ttnn.to_memory_config(x, shard)
    number = captured(mesh, lambda: ttnn.experimental.paged_update_cache(cache, x, update_idxs=positions))
    replay(mesh, number)
    positions[0] += 1
    replay(mesh, number)


@mistake(Told.STRICT, "state['user'] is 1 by now, and was 0", "batch_idx=0", symptom=ONE_PLACE, mend=AS_A_TENSOR)
def a_user_is_an_entry_of_a_dictionary(mesh):
    cache, x = cache_and_rows(mesh)
    state = {"user": 0, "step": 0}
    number = captured(mesh, lambda: ttnn.fill_cache(cache, x, state["user"]))
    for state["user"] in range(2):
        replay(mesh, number)


class Session:
    def __init__(self, mesh):
        self.cache, self.x = cache_and_rows(mesh)
        self.state = {"positions": [5, 7]}

    def step(self):
        ttnn.update_cache(self.cache, self.x, self.state["positions"][0])


@mistake(Told.STRICT, "self.state['positions'][0] is 6 by now, and was 5", symptom=ONE_PLACE, mend=AS_A_TENSOR)
def a_position_lies_in_a_list_of_an_attribute(mesh):
    session = Session(mesh)
    number = captured(mesh, session.step)
    for _ in range(2):
        replay(mesh, number)
        session.state["positions"][0] += 1


@mistake(Told.STRICT, "position is [6] by now, and was [5]", symptom=ONE_PLACE, mend=AS_A_TENSOR)
def a_position_is_a_tensor_on_the_host(mesh):
    cache, x = cache_and_rows(mesh)
    position = torch.tensor([5])
    number = captured(mesh, lambda: ttnn.update_cache(cache, x, position.item()))
    for _ in range(2):
        replay(mesh, number)
        position += 1


@mistake(Told.STRICT, "position is 4 by now, and was 3", symptom=ONE_PLACE, mend=AS_A_TENSOR)
def a_function_that_replays_is_given_the_position(mesh):
    cache, x = cache_and_rows(mesh)

    def step(position):
        ttnn.update_cache(cache, x, position)

    def decode(number, position):
        replay(mesh, number)
        return position + 1

    number, at = captured(mesh, step, 3), 3
    for _ in range(2):
        at = decode(number, at)


@mistake(Told.STRICT, "position is 4 by now, and was 3", symptom=ONE_PLACE, mend=AS_A_TENSOR)
def a_wrapper_hands_on_all_its_arguments(mesh):
    cache, x = cache_and_rows(mesh)

    def update(*args, **kwargs):
        ttnn.update_cache(*args, **kwargs)

    position = 3
    number = captured(mesh, lambda: update(cache, x, update_idx=position))
    for position in (3, 4):  # noqa: B007
        replay(mesh, number)


@unknowable(
    "A literal comes from no variable. The trace may be meant for this user alone.",
    symptom=ONE_PLACE,
    mend=AS_A_TENSOR,
)
def a_trace_of_the_first_user_is_replayed_for_all(mesh):
    cache, x = cache_and_rows(mesh)
    number = captured(mesh, lambda: ttnn.fill_cache(cache, x, 0))
    for _user in range(3):
        replay(mesh, number)


@right
def other_entries_and_other_users_change(mesh):
    cache, x = cache_and_rows(mesh)
    state, positions = {"user": 1, "step": 0}, [3, 4]
    of_user = captured(mesh, lambda: ttnn.fill_cache(cache, x, state["user"]))
    of_position = captured(mesh, lambda: ttnn.update_cache(cache, x, positions[0]))
    for state["step"] in range(3):
        positions[1] += 1
        replay(mesh, of_user)
        replay(mesh, of_position)


@right
def one_trace_writes_for_all_users(mesh):
    cache, x = cache_and_rows(mesh)

    def fill():
        for user in range(4):
            ttnn.fill_cache(cache, x, user)

    number = captured(mesh, fill)

    def run(user):
        replay(mesh, number)
        return user

    for user in range(6):
        run(user)


@right
def a_trace_for_each_user(mesh):
    cache, x = cache_and_rows(mesh)
    traces = []
    for user in range(3):
        traces.append(captured(mesh, lambda place: ttnn.fill_cache(cache, x, place), user))
    for _ in range(2):
        for number in traces:
            replay(mesh, number)


@right
def one_place_for_all_replays(mesh):
    cache, x = cache_and_rows(mesh, users=1)
    user, start = 0, 32
    number = captured(mesh, lambda: ttnn.fill_cache(cache, x, user, update_idx=start))
    for value in range(3):
        rows = ttnn.from_torch(torch.full((1, 1, 32, 32), float(value)), ttnn.bfloat16, layout=TILES)
        ttnn.copy_host_to_device_tensor(rows, x)
        replay(mesh, number)


@right
def a_place_is_a_tensor_that_is_written_before_each_replay(mesh):
    cache, x = cache_and_rows(mesh)
    position = 0
    place = ttnn.from_torch(torch.tensor([position]), ttnn.uint32, layout=ROWS, device=mesh)
    table = ttnn.from_torch(torch.arange(8, dtype=torch.int32).reshape(4, 2) % 4, ttnn.int32, layout=ROWS, device=mesh)
    fill = ttnn.experimental.paged_fill_cache
    number = captured(mesh, lambda: fill(cache, x, table, batch_idx_tensor=place))
    for position in range(3):
        written = ttnn.from_torch(torch.tensor([position]), ttnn.uint32, layout=ROWS)
        ttnn.copy_host_to_device_tensor(written, place)
        replay(mesh, number)
