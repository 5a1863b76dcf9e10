"""Owners of the pages of a paged cache, in strict mode: a page may go to another user while its user decodes on.

A user is a row of the page table. Pages are a user's by a fill, or by the first row that an update writes there. A fill
with what a page holds already leaves it to its user, if the table has the page in that user's row, too. Who reads a
page of another user shares it, as with a common prefix, unless it was the reader's own before. Tables of one
row, in which any user may stand, and calls on some devices only are not followed.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from softmesh import value_free
from softmesh.dispatch.definition import Definition
from softmesh.dispatch.signature import BoundCall
from softmesh.strictness import doubt, is_strict
from softmesh.tensor.tensor import Tensor

_MOST = 1 << 14  # numbers in a table that is looked at
Place = tuple[int, int]  # the number of a device, and of its page or user


class PageOwners:
    """Notes on a cache whose page tables have this form."""

    needs_look = True  # of every call, in strict mode

    def __init__(self, form: tuple[int, ...]) -> None:
        self.form = form
        self.owner: dict[Place, int] = {}
        self.had: dict[Place, set[int]] = {}  # pages that have been a user's

    def give(self, device: int, page: int, user: int) -> None:
        self.owner[device, page] = user
        self.had.setdefault((device, user), set()).add(page)

    def other(self, device: int, page: int, user: int) -> int | None:
        """The user to whom a page has gone that was this user's before."""
        now = self.owner.get((device, page), user)
        return None if now == user or page not in self.had.get((device, user), ()) else now


def _owners(cache: Tensor, table: Tensor) -> PageOwners | None:
    """The notes on a cache; None where they cannot be kept."""
    storage, values = cache.storage, table.view_data()
    form = (*values.shape[:-2], values.shape[-2])
    is_known = values.shape[-2] > 1 and values.numel() <= _MOST and not (values.is_meta or value_free.is_on)
    notes = storage.notes
    if not is_known or not (notes is None or isinstance(notes, PageOwners)):
        return None
    if notes is None or notes.form != form:
        storage.notes = notes = PageOwners(form)
    return notes


def _rows(table: Tensor, numbers: Tensor | None) -> Iterator[tuple[int, list[list[int]], list[int] | None]]:
    """Each device's number, its table, and its numbers: one for each user, or that of one user."""
    tables = table.view_data().flatten(0, -3).tolist()
    given = None if numbers is None else numbers.view_data().flatten(0, -2).tolist()
    for device, rows in enumerate(tables):
        yield device, rows, None if given is None else given[device % len(given)]


def note_fill(op: Definition, call: BoundCall) -> None:
    """Note whose pages a fill is about to write."""
    if not is_strict():
        return
    given = call.named
    cache, table = given["cache_tensor"], given["page_table"]
    owners = _owners(cache, table)
    if owners is None or given["mesh_coords"] is not None:
        if isinstance(cache.storage.notes, PageOwners):
            cache.storage.notes = None
        return
    length, block = given["input_tensor"].shape[2], given["block_size"] or cache.shape[2]
    for device, rows, users in _rows(table, given["batch_idx_tensor"]):
        user = users[0] if users else given["batch_idx"]
        if not isinstance(user, int) or not 0 <= user < len(rows):
            return  # the op itself will tell
        pages = [page for page in rows[user][: -(-length // block)] if page >= 0]
        owners.had[device, user] = set()  # another prompt begins
        for at, page in enumerate(pages):
            owner = owners.owner.get((device, page), user)
            is_shared = page in rows[owner] and not _changes(cache, given["input_tensor"], device, page, at)
            if owner == user or not is_shared:
                owners.give(device, page, user)


def _changes(cache: Tensor, values: Tensor, device: int, page: int, at: int) -> bool:
    """True if a page gets other values than it has: two users may be filled with one prefix."""
    size = cache.shape[2]
    held, new = (tensor.view_data().flatten(0, -5) for tensor in (cache, values))
    if page >= held.shape[1]:
        return True
    part = new[device % len(new), 0, :, at * size : (at + 1) * size]
    return not torch.equal(held[device % len(held), page, :, : part.shape[1]], part)


def note_update(op: Definition, call: BoundCall) -> None:
    """Note whose pages an update begins, and doubt those that have gone to others."""
    if not is_strict():
        return
    given = call.named
    table, positions = given["page_table"], given["update_idxs_tensor"]
    if table is None or positions is None or given["mesh_coords"] is not None:
        return
    for cache in (tensor for name, tensor in given.items() if name.startswith("cache_tensor")):
        owners = _owners(cache, table)
        if owners is None or positions.shape != [table.shape[0]]:
            continue
        for device, rows, current in _rows(table, positions):
            for user, position in enumerate(current or ()):
                page_at, row = divmod(position, cache.shape[2])
                page = rows[user][page_at] if 0 <= position < len(rows[user]) * cache.shape[2] else -1
                if page >= 0 and (row == 0 or (device, page) not in owners.owner):
                    owners.give(device, page, user)
                elif page >= 0:
                    _doubt(op.name, owners, (device, user), page, "writes to")


def doubt_moved_pages(op: Definition, call: BoundCall) -> None:
    """Doubt pages that a user reads, and that have gone to another user since they were its own."""
    given = call.named
    table, positions, cache = given["page_table_tensor"], given["cur_pos_tensor"], given["input_tensor_k"]
    if not is_strict() or table is None or not isinstance(cache.storage.notes, PageOwners):
        return
    owners = _owners(cache, table)
    if owners is None or positions is None or positions.shape != [table.shape[0]]:
        return
    for device, rows, current in _rows(table, positions):
        for user, position in enumerate(current or ()):
            for page in rows[user][: position // cache.shape[2] + 1]:
                if _doubt(op.name, owners, (device, user), page, "reads"):
                    return


def _doubt(op: str, owners: PageOwners, reader: Place, page: int, does: str) -> bool:
    device, user = reader
    other = owners.other(device, page, user)
    if other is not None:
        doubt(
            f"{op}: user {user} {does} page {page}, which was its own and has gone to user {other} since: what it held "
            f"is written over. Give user {other} a page that is free, or take the page out of the row of user {user}.",
        )
    return other is not None
