"""The manual builds without a warning, and its reference has every name, option, message and variable."""

from __future__ import annotations

import html
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import softmesh
from softmesh.errors import SoftmeshError, SoftmeshWarning

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("manual") / "site"
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


def test_every_document_is_a_page(site):
    missing = [path.stem for path in (ROOT / "docs").glob("*.md") if not (site / f"{path.stem}.html").exists()]
    assert missing == []


def test_no_page_needs_the_network(site):
    for page in site.rglob("*.html"):
        loaded = re.findall(r"<(?:script|link|img)[^>]*(?:src|href)=[\"']?(https?://[^\"' >]+)", page.read_text())
        assert [address for address in loaded if "canonical" not in address] == [], page.name


@pytest.mark.parametrize(
    ("page", "anchor"),
    [
        ("reference/element-by-element.html", "ttnn.relu"),
        ("reference/collectives.html", "ttnn.all_reduce"),
        ("reference/values.html", "ttnn.MeshShape"),
        ("reference/command-line.html", "softmesh-schedule"),
        ("reference/command-line.html", "tt-run"),
        ("reference/errors.html", "PartialWarning"),
        ("reference/further-ops.html", "ttnn.generic_op"),  # loaded when first asked for
        ("reference/softmesh-collectives.html", "softmesh.collectives.schedule_for"),
        ("reference/softmesh-kernels.html", "softmesh.kernels.abs_tile"),
        ("reference/softmesh-train.html", "softmesh.train.Trainer"),
        ("notebooks/mesh_tensors.html", "the-missing-line"),
    ],
)
def test_names_commands_and_errors_have_anchors(site, page, anchor):
    assert f'id="{anchor}"' in (site / page).read_text()


def test_every_message_has_an_address_of_its_own(site):
    page = (site / "reference" / "errors.html").read_text()
    addresses = re.findall(r'<li><a href="#m-\w+" id="(m-\w+)">|<li><a id="(m-\w+)"', page)
    assert len(addresses) == len(set(addresses)) > 1000


def test_every_name_of_the_top_namespace_is_in_the_reference(site):
    told = "".join(page.read_text() for page in (site / "reference").glob("*.html"))
    public = [name for name in dir(softmesh) if not name.startswith("_")]
    public = [name for name in public if not inspect.ismodule(getattr(softmesh, name))]
    assert [name for name in public if f'id="ttnn.{name}"' not in told] == []


@pytest.mark.parametrize(
    ("owner", "words"),
    [
        ("PartialWarning", "hold contributions that nobody has combined"),
        ("ArgumentError", "steps must be a tuple of steps, got"),  # behind the name of what refuses
        ("NoStrategy", "is left of"),  # a class beside the code that raises it
        ("LockstepError", "another program than the rest"),  # lines that are joined
        ("OutOfHostMemory", "the host's memory would run out"),  # made by a function
        ("SanitizerWarning", "overwrites"),
        ("NotFiniteLoss", "The loss of step"),  # given to its base
        ("GpuFailure", "the GPU has failed"),
    ],
)
def test_the_words_of_a_message_can_be_searched_for(site, owner, words):
    page = (site / "reference" / "errors.html").read_text()
    section = page.partition(f'id="{owner}"')[2].partition("<h2")[0]
    assert words in html.unescape(section)


def test_every_class_of_errors_and_warnings_is_in_the_reference(site):
    """What importing the package defines: those of modules that load late are in its files, too."""
    page = (site / "reference" / "errors.html").read_text()
    kinds = [SoftmeshError, SoftmeshWarning]
    for kind in kinds:
        kinds += [below for below in kind.__subclasses__() if below.__module__.startswith("softmesh.")]
    public = {kind.__name__ for kind in kinds if not kind.__name__.startswith("_")}
    assert {name for name in public if f'id="{name}"' not in page} == set()


def test_every_environment_variable_is_explained():
    named = set()
    for file in (ROOT / "softmesh").rglob("*.py"):
        named |= set(re.findall(r"[\"']((?:SOFTMESH|TTNN|TT)_[A-Z0-9_]*[A-Z0-9])[\"']", file.read_text()))
    text = (ROOT / "docs" / "environment.md").read_text()
    assert {name for name in named if f"`{name}`" not in text} - _NOT_VARIABLES == set()


_NOT_VARIABLES: set[str] = set()
