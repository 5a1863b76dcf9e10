"""Says at once what a hang would say hours later: descriptor, bindings, fabric and machine do not fit."""

from softmesh.lint.file_report import FileReport
from softmesh.lint.files import lint

__all__ = ["FileReport", "lint"]
