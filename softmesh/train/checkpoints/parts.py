"""The files of a checkpoint that this process reads, and no more of each than it needs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from softmesh.errors import MeshError
from softmesh.train.checkpoints.index import Index, Piece
from softmesh.train.checkpoints.regions import Held, cuts


class Parts:
    """Files are opened when something of them is needed; their headers are checked then."""

    def __init__(self, folder: Path, step: int) -> None:
        self.folder, self.step = folder, step
        self.bytes_read = 0
        self._files: dict[str, Any] = {}

    def whole(self, key: str, index: Index, target: Held, dtype: torch.dtype) -> torch.Tensor:
        """What this process stores of a value, put together from the pieces that overlap it."""
        entry = index.tensors[key]
        out = torch.zeros(target.stored, dtype=dtype)
        filled = 0
        for piece in entry.pieces:
            found = cuts(piece.held, target)
            if not found:
                continue
            stored = self._stored(piece, key)
            for cut in found:
                values = stored[cut.source]
                self._check_dtype(piece, key, values.dtype, dtype)
                out[cut.target] = values
                filled += cut.volume
                self.bytes_read += values.nbytes
        wanted = sum(box.volume() for _, box in target.boxes())
        if filled != wanted:
            raise MeshError(
                f"{self.folder}: the pieces of {key!r} make up {filled} of the {wanted} values that are needed: its "
                f"index is damaged. {self._remedy()}"
            )
        return out

    def _stored(self, piece: Piece, key: str) -> Any:
        from safetensors import SafetensorError

        path = self.folder / piece.file
        try:
            stored = self._opened(path).get_slice(key)
            shape = tuple(stored.get_shape())
        except SafetensorError as error:
            raise MeshError(
                f"{path} has no {key!r} ({error}), which its index names. {self._remedy()}"
            ) from error
        if shape != piece.held.stored:
            raise MeshError(
                f"{path}: {key!r} has the shape {list(shape)}, its index says {list(piece.held.stored)}. "
                f"{self._remedy()}"
            )
        return stored

    def _check_dtype(self, piece: Piece, key: str, found: torch.dtype, wanted: torch.dtype) -> None:
        if found is not wanted:
            raise MeshError(
                f"{self.folder / piece.file}: {key!r} is {found}, its index says {wanted}. {self._remedy()}"
            )

    def _opened(self, path: Path) -> Any:
        if path.name not in self._files:
            self._files[path.name] = self._open(path)
        return self._files[path.name]

    def _open(self, path: Path) -> Any:
        from safetensors import SafetensorError, safe_open

        try:
            file = safe_open(path, framework="pt")
        except FileNotFoundError as error:
            raise MeshError(f"{path} is missing. {self._remedy()}") from error
        except (SafetensorError, OSError) as error:
            raise MeshError(
                f"{path} is truncated, or no safetensors file ({error}; it has {path.stat().st_size} bytes). "
                f"{self._remedy()}"
            ) from error
        tagged = (file.metadata() or {}).get("step")
        if tagged != str(self.step):
            raise MeshError(
                f"{path} is tagged with step {tagged}, its index with step {self.step}: files of two checkpoints were "
                f"mixed. {self._remedy()}"
            )
        return file

    def _remedy(self) -> str:
        return f"Nothing was changed; restore the file, or load an earlier step of {self.folder.parent}."
