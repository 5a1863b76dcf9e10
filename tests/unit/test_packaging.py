"""What is published: the version is written once, the README's links work away from its folder, no file is left out."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import pytest
import setuptools

from softmesh.version import __version__

ROOT = Path(__file__).parents[2]


@pytest.fixture
def published(monkeypatch) -> dict[str, Any]:
    """What setup.py hands to setuptools."""
    handed: dict[str, Any] = {}
    monkeypatch.setattr(setuptools, "setup", handed.update)
    monkeypatch.chdir(ROOT)
    runpy.run_path("setup.py")
    return handed


def test_every_link_of_the_readme_is_an_address_on_the_page_of_the_package(published):
    targets = re.findall(r"\]\(([^)]*)\)", published["long_description"])
    assert len(targets) > 20
    assert [target for target in targets if not target.startswith(("https://", "#"))] == []


def test_pictures_are_addressed_as_files_and_pages_as_pages(published):
    text = published["long_description"]
    assert re.search(r"!\[[^\]]*\]\(https://[^)]*/raw/main/docs/[^)]*\.svg\)", text)
    assert re.search(r"(?<!!)\[[^\]]*\]\(https://[^)]*/blob/main/docs/[^)]*\.md\)", text)


def test_the_wheel_without_c_is_for_every_machine(monkeypatch, published):
    assert len(published["ext_modules"]) == 2
    monkeypatch.setenv("SOFTMESH_PURE", "1")
    runpy.run_path("setup.py")
    assert published["ext_modules"] == []


def test_the_version_is_written_in_one_place_and_heads_the_changelog():
    assert 'dynamic = ["version"' in (ROOT / "pyproject.toml").read_text()
    heading = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert heading is not None
    assert heading[1] == __version__


@pytest.mark.parametrize("page", [*sorted(p.relative_to(ROOT).as_posix() for p in ROOT.glob("*.md")), "docs"])
def test_relative_links_lead_to_files_that_are_there(page):
    place = ROOT / page
    for file in sorted(place.glob("**/*.md")) if place.is_dir() else [place]:
        text = re.sub(r"```.*?```", "", file.read_text(), flags=re.S)
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
            if "://" not in target and not target.startswith("reference/"):  # those are made with the manual
                assert (file.parent / target).exists(), f"{file.relative_to(ROOT)}: {target}"
