"""`ttnn.CONFIG`: options of the process, from TTNN_CONFIG_PATH, TTNN_CONFIG_OVERRIDES and the program.

Options that steer something here call their watchers when they are set; the others are kept as they are set.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from types import ModuleType
from typing import Any

from softmesh import epoch
from softmesh.agreed_variables import agreed
from softmesh.arguments import checked, described
from softmesh.errors import ArgumentError, ArgumentValueError, MeshError, SoftmeshWarning, did_you_mean
from softmesh.input_files.text_files import checked_path, read_text
from softmesh.terminal_text import readable


def _deciding(overrides: str) -> str:
    """Return overrides without the name of a report, which may well be one of each rank."""
    try:
        found = json.loads(overrides)
        found.pop("report_name", None)
    except (AttributeError, TypeError, ValueError, RecursionError):  # no object: told where the options are made
        return overrides
    return json.dumps(found, sort_keys=True) if found else ""


_PATH, _OVERRIDES = agreed("TTNN_CONFIG_PATH"), agreed("TTNN_CONFIG_OVERRIDES", meaning=_deciding)
_CACHE = Path(os.path.expanduser("~"), ".cache", "ttnn")
Watcher = Callable[["Config"], None]


def _as_path(value: object) -> Path:
    if not isinstance(value, str | os.PathLike):
        raise TypeError("it is a path")
    return Path(value)


def _as_optional_path(value: object) -> Path | None:
    return None if value is None else _as_path(value)


def _as_bool(value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError("it is True or False")
    return value


def _cast(value: object, present: object) -> object:
    """As a dictionary may write it: 0 and 1 for a switch, a number as text."""
    if isinstance(present, bool) and value in (0, 1) and isinstance(value, int):
        return bool(value)
    if isinstance(present, float) and isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return value
    return value


_LARGEST = sys.float_info.max


def _as_float(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError("it is a number")
    if not abs(value) <= _LARGEST:
        raise TypeError("it is a number that a float can hold")
    return float(value)


_CONVERSIONS: dict[str, Callable[[object], object]] = {
    "Path": _as_path,
    "Path | None": _as_optional_path,
    "bool": _as_bool,
    "float": _as_float,
}


@dataclass(init=False)
class Config:
    """Made plain, or as a copy of another. Each field checks what it is given."""

    cache_path: Path = _CACHE
    model_cache_path: Path = _CACHE / "models"
    tmp_dir: Path = Path("/tmp/ttnn")
    enable_model_cache: bool = False
    enable_fast_runtime_mode: bool = True
    validate_program_args: bool = False
    throw_exception_on_fallback: bool = False  # nothing falls back to the host here
    enable_logging: bool = False
    enable_graph_report: bool = False
    enable_graph_python_stack_traces: bool = False
    enable_detailed_buffer_report: bool = False
    enable_detailed_tensor_report: bool = False
    enable_comparison_mode: bool = False  # every op is compared with its golden function
    comparison_mode_should_raise_exception: bool = False
    comparison_mode_pcc: float = 0.9999
    root_report_path: Path = Path("generated", "ttnn", "reports")
    report_name: Path | None = None
    strict_ccl_topology: bool = False

    def __init__(self, other: Config | None = None) -> None:
        if other is not None and not isinstance(other, Config):
            raise ArgumentError(
                f"__init__(): incompatible function arguments. Write Config() or Config(ttnn.CONFIG), not "
                f"Config({described(other)})."
            )
        self._watchers: dict[str, list[Watcher]]
        object.__setattr__(self, "_watchers", {})
        for name in self.keys():
            setattr(self, name, getattr(other if other is not None else type(self), name))

    def __setattr__(self, name: str, value: object) -> None:
        convert = _FIELDS.get(name)
        if convert is None:
            raise AttributeError(f"Config has no option {name!r}.{did_you_mean(name, _FIELDS)}")
        try:
            object.__setattr__(self, name, convert(value))
        except TypeError as error:
            raise ArgumentError(f"Config.{name} cannot be {described(value)}: {error}.") from None
        epoch.invalidate()
        for watcher in self._watchers.get(name, ()):
            watcher(self)

    def __repr__(self) -> str:
        return f"Config{{{','.join(f'{name}={_shown(getattr(self, name))}' for name in self.keys())}}}"

    def keys(self) -> list[str]:
        return [field.name for field in fields(self)]

    @property
    def report_path(self) -> Path | None:
        """Where the report of this run goes; None while it has no name."""
        return None if self.report_name is None else self.root_report_path / self.report_name

    def watch(self, name: str, watcher: Watcher) -> None:
        """Let `watcher(config)` know whenever the option is set."""
        self._watchers.setdefault(name, []).append(watcher)

    def apply_json_overrides(self, json_text: str, strict: bool = True, source: str = "") -> None:
        """Set what a JSON object names. Unknown names are refused; left out where it is not `strict`."""
        where = source or "apply_json_overrides"
        try:
            options = json.loads(json_text)
        except (ValueError, TypeError, RecursionError) as error:
            raise MeshError(f"{where}: it is not JSON ({error}).") from None
        if not isinstance(options, dict):
            raise MeshError(f'{where}: expected a JSON object such as {{"enable_logging": true}}.')
        self._apply(options, strict, where)

    def _apply(self, options: Mapping[str, object], strict: bool, where: str) -> None:
        known = {name: value for name, value in options.items() if name in _FIELDS}
        if strict and (unknown := [name for name in options if name not in known]):
            raise ArgumentValueError(
                f"{where}: Unknown configuration key: {readable(str(unknown[0]))}."
                f"{did_you_mean(str(unknown[0]), _FIELDS)}"
            )
        if unknown := [name for name in options if name not in known]:
            warnings.warn(
                f"{where}: Unknown configuration key: {readable(str(unknown[0]))}."
                f"{did_you_mean(str(unknown[0]), _FIELDS)} It is left out.",
                SoftmeshWarning,
                stacklevel=3,
            )
        for name, value in known.items():
            setattr(self, name, _cast(value, getattr(self, name)))

    def take(self, other: Config) -> None:
        """Have the options of another from now on."""
        checked("take", "other", other, Config, "a configuration as ttnn.CONFIG is one")
        for name in self.keys():
            if getattr(self, name) != getattr(other, name):
                setattr(self, name, getattr(other, name))

    def load_from_file(self, path: str | os.PathLike[str]) -> None:
        file = checked_path("load_from_file", "path", path)
        self.apply_json_overrides(read_text(file, kind="configuration"), source=file)

    def as_json(self) -> dict[str, object]:
        """Every option as JSON can hold it."""
        return {name: _as_json(getattr(self, name)) for name in self.keys()}

    def save_to_file(self, path: str | os.PathLike[str]) -> None:
        file = checked_path("save_to_file", "path", path)
        try:
            Path(file).write_text(json.dumps(self.as_json(), indent=4) + "\n", encoding="utf-8")
        except OSError as error:
            raise MeshError(f"Config.save_to_file: cannot write {readable(file)}: {error.strerror}.") from None


_FIELDS = {field.name: _CONVERSIONS[str(field.type)] for field in fields(Config)}


def _shown(value: object) -> str:
    """As the native layer writes it."""
    if isinstance(value, bool):
        return str(value).lower()
    return "std::nullopt" if value is None else str(value)


def _as_json(value: object) -> object:
    return str(value) if isinstance(value, Path) else value


CONFIG = Config()


def load_config_from_dictionary(config: Mapping[str, Any], from_file: bool = False, source: str | None = None) -> None:
    """Set these options of `ttnn.CONFIG`. What came from a file may name options that are not known here."""
    if not isinstance(config, Mapping):
        raise ArgumentError(
            f"load_config_from_dictionary(): incompatible function arguments: config must be a dict, got "
            f"{described(config)}."
        )
    CONFIG._apply(config, not from_file, source or "load_config_from_dictionary")


def load_config_from_json_file(json_path: str | os.PathLike[str]) -> None:
    file = checked_path("load_config_from_json_file", "json_path", json_path)
    CONFIG.apply_json_overrides(read_text(file, kind="configuration"), strict=False, source=file)


@contextmanager
def manage_config(name: str, value: object) -> Iterator[None]:
    """Within the block `ttnn.CONFIG` has this option set so."""
    if name not in _FIELDS:
        raise AttributeError(f"Config has no option {name!r}.{did_you_mean(str(name), _FIELDS)}")
    before = getattr(CONFIG, name)
    setattr(CONFIG, name, "" if value is None and isinstance(before, Path) and name != "report_name" else value)
    try:
        yield
    finally:
        setattr(CONFIG, name, before)


def save_config_to_json_file(json_path: str | os.PathLike[str]) -> None:
    """The options of `ttnn.CONFIG` as a JSON object."""
    CONFIG.save_to_file(json_path)


def environment_path() -> Path | None:
    """`ttnn.CONFIG_PATH`: the file that TTNN_CONFIG_PATH names."""
    path = os.environ.get(_PATH)
    return Path(path) if path else None


def environment_overrides() -> str | None:
    """`ttnn.CONFIG_OVERRIDES`: the JSON of TTNN_CONFIG_OVERRIDES."""
    return os.environ.get(_OVERRIDES) or None


def load_environment() -> None:
    """The file that TTNN_CONFIG_PATH names, which is written where there is none; then TTNN_CONFIG_OVERRIDES."""
    path, overrides = environment_path(), environment_overrides()
    if path is not None and os.path.exists(path):
        text = read_text(os.fspath(path), kind="configuration")
        CONFIG.apply_json_overrides(text, strict=False, source=f"{path} (TTNN_CONFIG_PATH)")
    elif path is not None:
        CONFIG.save_to_file(path)
    if overrides is not None:
        CONFIG.apply_json_overrides(overrides, source=_OVERRIDES)


class ConfigHolder(ModuleType):
    """A module of which `CONFIG` is the configuration: setting it anew sets every option of it."""

    def __setattr__(self, name: str, value: object) -> None:
        if name != "CONFIG":
            super().__setattr__(name, value)
        elif isinstance(value, Config):
            CONFIG.take(value)
        else:
            raise ArgumentError(f"ttnn.CONFIG must be a ttnn.Config, got {described(value)}.")
