"""Corrections of a law by measured neighbours of a workload: an interpolated log residual, and how sure it is.

The residuals of a law at the measured positions are interpolated (simple kriging with an exponential correlation:
between two points of one series nearly a straight line). Far from all of them the correction fades out, the law stands
alone and the band is the law's own doubt.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Column = NDArray[np.float64]


class Correction(NamedTuple):
    """The log of a factor, and how much of the law's doubt is left: 0 at a measured point, 1 far from all of them."""

    log_factor: float
    unknown: float


class Neighbours:
    """Measured points of one set of coefficients: positions, and logs of measured over predicted."""

    def __init__(
        self,
        positions: Sequence[Sequence[float]],
        residuals: Sequence[float],
        reach: Sequence[float],
        doubt: float,
        noise: float,
    ) -> None:
        self._reach = np.asarray(reach, dtype=float)
        self._points = np.asarray(positions, dtype=float).reshape(len(residuals), len(reach)) / self._reach
        self._doubt, self._noise = doubt, noise
        covariance = self._covariance(self._points)
        covariance[np.diag_indices(len(residuals))] += noise**2
        self._inverse = np.linalg.inv(covariance) if len(residuals) else covariance
        self._weights = self._inverse @ np.asarray(residuals, dtype=float)

    def _covariance(self, others: Column) -> Column:
        apart = np.abs(self._points[:, None, :] - others[None, :, :]).sum(axis=2)
        return self._doubt**2 * np.exp(-apart)

    def at(self, position: Sequence[float]) -> Correction:
        if not len(self._points):
            return Correction(0.0, 1.0)
        near = self._covariance(np.asarray([position], dtype=float) / self._reach)[:, 0]
        known = float(near @ self._inverse @ near) / self._doubt**2
        return Correction(float(near @ self._weights), float(np.sqrt(max(1.0 - known, 0.0))))
