"""Sizes and numbers that cannot be: said at once, before the machine is asked for memory or time."""

from __future__ import annotations

from small_programs import Mistake, cases, check_right, check_wrong

MISTAKES = [
    Mistake(
        "a mesh of a million by a million",
        "ttnn.open_mesh_device(ttnn.MeshShape(10**6, 10**6))",
        "MeshShape([1000000, 1000000]) would have 1000000000000 devices",
        "ttnn.open_mesh_device(ttnn.MeshShape(32, 32))",
    ),
    Mistake(
        "a mesh that nobody can open",
        "ttnn.open_mesh_device(ttnn.MeshShape(1000, 1000))",
        "at most 65536 can be opened at once",
        "ttnn.open_mesh_device(ttnn.MeshShape(100, 100))",
    ),
    Mistake(
        "a range that the host cannot hold",
        "ttnn.arange(10**13)",
        "arange: the host's memory would run out: 18626.5 GiB for [10000000000000] is needed",
        "ttnn.arange(10**5)",
    ),
    Mistake(
        "random numbers that the host cannot hold",
        "ttnn.rand((10**7, 10**6))",
        "rand: the host's memory would run out",
        "ttnn.rand((100, 100))",
    ),
    Mistake(
        "a column plus a row",
        """
        mesh = ttnn.open_mesh_device(ttnn.MeshShape(1, 2))
        column = ttnn.ones((3 * 10**5, 1), ttnn.bfloat16, ttnn.TILE_LAYOUT, mesh)
        row = ttnn.ones((1, 3 * 10**6), ttnn.bfloat16, ttnn.TILE_LAYOUT, mesh)
        column + row
        """,
        "add: the host's memory would run out: 1676.4 GiB for [1, 1, 300000, 3000000] is needed",
        """
        mesh = ttnn.open_mesh_device(ttnn.MeshShape(1, 2))
        column = ttnn.ones((100, 1), ttnn.bfloat16, ttnn.TILE_LAYOUT, mesh)
        row = ttnn.ones((1, 100), ttnn.bfloat16, ttnn.TILE_LAYOUT, mesh)
        column + row
        """,
    ),
    Mistake(
        "a tensor repeated too often",
        """
        mesh = ttnn.open_mesh_device(ttnn.MeshShape(1, 2))
        ttnn.repeat(ttnn.ones((32, 32), ttnn.bfloat16, ttnn.TILE_LAYOUT, mesh), (10**5, 10**5))
        """,
        "repeat: the host's memory would run out",
        """
        mesh = ttnn.open_mesh_device(ttnn.MeshShape(1, 2))
        ttnn.repeat(ttnn.ones((32, 32), ttnn.bfloat16, ttnn.TILE_LAYOUT, mesh), (2, 3))
        """,
    ),
    *(
        Mistake(
            f"a number that no dtype holds, in {call}",
            f"""
            mesh = ttnn.open_mesh_device(ttnn.MeshShape(1, 2))
            x = ttnn.ones((32, 32), ttnn.float32, ttnn.TILE_LAYOUT, mesh)
            {call.replace("N", "10**400")}
            """,
            "larger than any dtype can hold",
            f"""
            mesh = ttnn.open_mesh_device(ttnn.MeshShape(1, 2))
            x = ttnn.ones((32, 32), ttnn.float32, ttnn.TILE_LAYOUT, mesh)
            {call.replace("N", "2")}
            """,
        )
        for call in ("ttnn.add(x, N)", "x * N", "ttnn.gt(x, N)", "ttnn.clamp(x, -1, N)", "ttnn.full_like(x, N)")
    ),
    Mistake(
        "a fill value that no dtype holds",
        "ttnn.full((2, 2), 10**400)",
        "full: fill_value is a number of 1329 bits; no dtype has more than 64",
        "ttnn.full((2, 2), 10**4)",
    ),
]


@cases(MISTAKES)
def test_what_is_said(mistake, tmp_path):
    check_wrong(mistake, tmp_path)


@cases(MISTAKES)
def test_nothing_is_said_of_the_neighbour(mistake, tmp_path):
    check_right(mistake, tmp_path)


def test_a_tensor_without_elements_prints():
    mistake = "print(ttnn.from_torch(torch.zeros({}, 0, 3)))"
    for extent in (0, 1, 5):
        check_right(Mistake("", "", "", mistake.format(extent)), None)
