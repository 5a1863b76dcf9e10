"""The layers hold: imports point down as docs/layers.yaml says, and what is private stays in its package.

The second half tests the rules themselves, on small trees with one thing wrong.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from layer_rules import Source, circles, private_reads, wrong_imports, wrong_lists

from softmesh.report.layers_picture import Late, Layer, Layers, draw, layers_svg

ROOT = Path(__file__).parent.parent.parent
LAYERS = Layers.read(ROOT / "docs" / "layers.yaml")


@pytest.fixture(scope="module")
def source() -> Source:
    return Source(ROOT)


def test_every_package_and_root_module_is_in_one_layer(source: Source) -> None:
    assert wrong_lists(source, LAYERS) == []


def test_imports_point_down_the_layers(source: Source) -> None:
    assert wrong_imports(source, LAYERS) == []


def test_no_modules_load_each_other_in_a_circle(source: Source) -> None:
    assert circles(source) == []


def test_private_attributes_stay_in_their_package(source: Source) -> None:
    assert private_reads(source) == []


def test_every_layer_and_every_late_lookup_says_something() -> None:
    for layer in LAYERS.layers:
        assert layer.says.endswith("."), layer.name
    assert all(late.why for late in LAYERS.late)
    assert len(LAYERS.late) <= 4


# -- the picture -------------------------------------------------------------------------------------


def test_the_picture_in_the_docs_is_up_to_date(tmp_path: Path) -> None:
    drawn = tmp_path / "layers.svg"
    result = CliRunner().invoke(draw, [str(ROOT / "docs" / "layers.yaml"), str(drawn)])
    assert result.exit_code == 0
    assert drawn.read_text(encoding="utf-8") == (ROOT / "docs" / "layers.svg").read_text(encoding="utf-8"), (
        "draw it again: python -m softmesh.report.layers_picture docs/layers.yaml docs/layers.svg"
    )


def test_the_picture_names_every_layer_and_all_that_it_holds() -> None:
    svg = layers_svg(LAYERS)
    for layer in LAYERS.layers:
        assert all(f">{name}</text>" in svg for name in (layer.name, *layer.holds))


# -- a wrong import is found, wherever it hides ------------------------------------------------------

SMALL = Layers((Layer("top", "Names.", ("__init__.py",)), Layer("low", "Values.", ("upper/", "lower.py"))))


def tree(folder: Path, **texts: str) -> Source:
    """A package of a root, a package `upper` and a module `lower`, with these texts in them."""
    files = {
        "__init__": "softmesh/__init__.py",
        "upper": "softmesh/upper/one.py",
        "lower": "softmesh/lower.py",
    }
    for name, path in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(texts.get(name, ""), encoding="utf-8")
    (folder / "softmesh/upper/__init__.py").touch()
    return Source(folder)


def test_imports_that_point_down_and_to_the_right_are_right(tmp_path: Path) -> None:
    right = tree(tmp_path, __init__="from softmesh.upper.one import a", upper="from softmesh import lower\na = lower.b")
    assert wrong_imports(right, SMALL) == wrong_lists(right, SMALL) == circles(right) == []


@pytest.mark.parametrize(
    "text",
    [
        "\nfrom softmesh.upper.one import a",
        "\nfrom softmesh.upper import one",
        "\nimport softmesh.upper.one",
        "\nfrom .upper.one import a",
        "def f():\n    from softmesh.upper.one import a",
        "if TYPE_CHECKING:\n    from softmesh.upper.one import a",
        "if typing.TYPE_CHECKING:\n    import softmesh.upper.one as u",
        "\nimport_module('softmesh.upper.one')",
        "\nHOMES = {'a': 'upper.one'}",
    ],
)
def test_a_wrong_import_is_told_with_file_line_and_layers(tmp_path: Path, text: str) -> None:
    assert wrong_imports(tree(tmp_path, lower=text), SMALL) == [
        "softmesh/lower.py:2: lower.py (layer 'low') imports softmesh.upper.one of upper/ (layer 'low'), "
        "which stands to the left of it"
    ]


@pytest.mark.parametrize(
    "text",
    [
        "import softmesh as ttnn",
        "from softmesh import MeshShape",
        "names = sys.modules['softmesh']",
        "names = importlib.import_module('softmesh')",
    ],
)
def test_the_public_names_are_a_layer_like_any_other(tmp_path: Path, text: str) -> None:
    assert wrong_imports(tree(tmp_path, upper=text), SMALL) == [
        "softmesh/upper/one.py:1: upper/ (layer 'low') imports softmesh of __init__.py (layer 'top'), "
        "which stands above it"
    ]


def test_the_name_of_a_logger_is_no_import(tmp_path: Path) -> None:
    assert wrong_imports(tree(tmp_path, lower="getLogger('softmesh.upper')"), SMALL) == []


def test_a_late_lookup_is_allowed_by_name_and_must_be_there(tmp_path: Path) -> None:
    late = Layers(SMALL.layers, (Late("lower.py", "softmesh.upper.one", "On purpose."),))
    assert wrong_imports(tree(tmp_path, lower="HOME = 'upper.one'"), late) == []
    assert wrong_imports(tree(tmp_path), late) == ["late: lower.py does not look up softmesh.upper.one"]


def test_what_no_layer_holds_and_what_is_not_there_is_told(tmp_path: Path) -> None:
    found = tree(tmp_path)
    (tmp_path / "softmesh_starter.py").touch()
    assert wrong_lists(Source(tmp_path), SMALL) == ["softmesh_starter.py is in no layer"]
    more = Layers((*SMALL.layers, Layer("ground", "Nothing.", ("gone.py", "lower.py"))))
    assert wrong_lists(found, more) == [
        "gone.py is in a layer, and there is no such package or module",
        "lower.py is in more than one layer",
    ]


def test_a_circle_of_modules_is_found_but_not_one_for_type_checkers(tmp_path: Path) -> None:
    one = "from softmesh import lower"
    circle = tree(tmp_path, upper=one, lower="def f():\n    from softmesh.upper import one")
    assert circles(circle) == [["softmesh.lower", "softmesh.upper.one", "softmesh.lower"]]
    assert circles(tree(tmp_path, upper=one, lower="if TYPE_CHECKING:\n    import softmesh.upper.one")) == []


@pytest.mark.parametrize(
    ("definition", "reading", "told"),
    [
        ("class A:\n    __slots__ = ('_storage',)", "a = x._storage", "x._storage"),
        ("class A:\n    def f(self):\n        self._cache = 1", "x.y()._cache.clear()", "x.y()._cache"),
        ("class A:\n    _cache: int = 0", "A()._cache = 1", "A()._cache"),
        ("class A:\n    def _step(self): ...", "x._step()", "x._step"),
        ("_hidden = 1", "from softmesh import lower\nlower._hidden", "lower._hidden"),
        ("_hidden = 1", "from softmesh.lower import _hidden", "softmesh.lower._hidden"),
    ],
)
def test_a_private_name_of_another_package_is_told(tmp_path: Path, definition: str, reading: str, told: str) -> None:
    line = reading.count("\n") + 1
    assert private_reads(tree(tmp_path, lower=definition, upper=reading)) == [
        f"softmesh/upper/one.py:{line}: upper/ reads {told}, private to lower.py"
    ]


@pytest.mark.parametrize(
    "reading",
    [
        "class B:\n    def f(self):\n        return self._cache + super()._cache",
        "class B:\n    _cache = 1\n\nB()._cache",
        "frame = sys._getframe()",
        "x._repr_html_()",
    ],
)
def test_what_is_ones_own_or_of_other_libraries_may_be_read(tmp_path: Path, reading: str) -> None:
    defined = "class A:\n    _cache = 1\n    def _repr_html_(self): ..."
    assert private_reads(tree(tmp_path, lower=defined, upper=reading)) == []
