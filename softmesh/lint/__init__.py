"""Static checks: whether descriptor, bindings, fabric and machine fit, before a job hangs because they do not."""

from softmesh.lint.file_report import FileReport
from softmesh.lint.linter import lint

__all__ = ["FileReport", "lint"]
