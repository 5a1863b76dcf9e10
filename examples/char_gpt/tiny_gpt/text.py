"""The bundled text as numbers, and batches of it by step: the same for every form of training."""

from pathlib import Path

import torch

TEXT = Path(__file__).parent.parent / "text.txt"
_ROUND = 32  # the vocabulary is padded to a multiple, so that it divides among devices


class Text:
    def __init__(self, path: Path = TEXT) -> None:
        characters = path.read_text(encoding="utf-8")
        self.alphabet = sorted(set(characters))
        number = {character: i for i, character in enumerate(self.alphabet)}
        self.ids = torch.tensor([number[character] for character in characters], dtype=torch.int32)
        self.vocabulary = -(-len(self.alphabet) // _ROUND) * _ROUND

    def batch(self, step: int, rows: int, tokens: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Rows of the text, and the same shifted by one: what comes next."""
        draw = torch.Generator().manual_seed(1_000_003 + step)
        starts = torch.randint(len(self.ids) - tokens - 1, (rows, 1), generator=draw)
        at = starts + torch.arange(tokens)
        return self.ids[at], self.ids[at + 1]
