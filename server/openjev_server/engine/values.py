"""Whether a tensor's values can be a trained model's: finite, and not all zero."""

from __future__ import annotations

import torch

from openjev_server.engine.matrix import Float8Matrix, Matrix
from openjev_server.engine.plan import Part, Wanted

__all__ = ["ValueCheck"]

NOT_A_NUMBER = 0x7F
"""float8_e4m3fn without its sign bit: the one pattern that is no number."""


class ValueCheck:
    """Looks at the pieces of one part; experts that are stored fused are judged one by one, and so are the gate and
    the up half of each. Costs one pass over the values, on their device."""

    def __init__(self, tensor: Wanted, part: Part, *, may_be_zero: bool) -> None:
        self._name = part.name
        self._scale = part.scale
        self._fused = len(tensor.shape) == 3 and part.expert is None
        self._halves = 2 if self._fused and tensor.name.endswith("gate_up_proj") else 1
        self._may_be_zero = may_be_zero
        self._seen: list[torch.Tensor] = []
        self._scales: list[torch.Tensor] = []

    def see(self, piece: Matrix) -> None:
        """Notes a piece's extremes, without waiting for the device."""
        values = piece.values if isinstance(piece, Float8Matrix) else piece
        assert isinstance(values, torch.Tensor)
        self._seen.append(_extremes(values.reshape(len(values) * self._halves if self._fused else 1, -1)))
        if isinstance(piece, Float8Matrix):
            self._scales.append(_extremes(piece.scale.reshape(1, -1)))

    def faults(self) -> list[str]:
        """What is wrong, by name; call it after the last piece."""
        extremes = torch.cat(self._seen).cpu()
        faults = []
        if not torch.isfinite(extremes).all():
            faults.append(f"{self._name} has values that are not finite")
        zero = (extremes == 0).all(1)
        if self._may_be_zero:
            pass
        elif zero.all():
            faults.append(f"{self._name} is all zero")
        elif self._fused and zero.any():
            experts = sorted({int(i) // self._halves for i in zero.nonzero()})
            shown = ", ".join(map(str, experts[:5])) + (", ..." if len(experts) > 5 else "")
            faults.append(f"{self._name} is all zero for expert {shown}")
        if self._scales:
            scales = torch.cat(self._scales).cpu()
            if not torch.isfinite(scales).all() or not scales.any():
                faults.append(f"{self._scale} is all zero or not finite")
            elif (scales < 0).any():
                faults.append(f"{self._scale} has values below 0")
        return faults


def _extremes(groups: torch.Tensor) -> torch.Tensor:
    """[groups, n] -> their lowest and highest values [groups, 2], NaN where there is one; of FP8, magnitudes."""
    if groups.dtype == torch.float8_e4m3fn:
        highest = (groups.view(torch.uint8) & NOT_A_NUMBER).amax(1).float()
        return highest.masked_fill(highest == NOT_A_NUMBER, torch.nan)[:, None].expand(-1, 2)
    if len(groups) == 1:
        return torch.stack(groups.aminmax())[None].float()
    # Two passes: aminmax over one dimension is eight times slower than amax on a CPU.
    return torch.stack((groups.amin(1), groups.amax(1)), 1).float()
