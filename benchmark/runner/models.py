"""The models of a run's best round as a safetensors file, kept on request, and back."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import torch

from ...registry import UserError
from ..engine.evaluate import Models

SERVER, PERSONAL = "server", "personal"
MISSING = "saved models need safetensors: pip install 'fglbench[models]'"


def check_safetensors() -> None:
    """UserError where the library is not installed."""
    if importlib.util.find_spec("safetensors") is None:
        raise UserError(MISSING)


def packed_models(models: Models) -> bytes:
    """A safetensors file: `server.NAME` of the server's model, `personal.BATCH.NAME` of the clients' own, (K, ...) with
    the clients of a batch on the first axis, in the order of the run."""
    check_safetensors()
    from safetensors.torch import save

    tensors = {f"{SERVER}.{name}": value for name, value in (models.server or {}).items()}
    for batch, params in enumerate(models.personal or ()):
        tensors |= {f"{PERSONAL}.{batch}.{name}": value for name, value in params.items()}
    return save({name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()})


def unpacked_models(path: Path) -> Models:
    """What `packed_models` gave. UserError where there is no such file or it is none."""
    check_safetensors()
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    if not path.is_file():
        raise UserError(
            f"no saved model at {str(path)!r}: run it with --save-models (save_models=True), or name its folder: "
            "load_model(row, results=...)"
        )
    try:
        tensors = load_file(path)
    except (SafetensorError, OSError) as error:
        raise UserError(f"cannot read {str(path)!r}: {error}; run it again with --save-models") from None
    server: dict[str, torch.Tensor] = {}
    personal: dict[int, dict[str, torch.Tensor]] = {}
    for name, value in tensors.items():
        if name.startswith(f"{SERVER}."):
            server[name.removeprefix(f"{SERVER}.")] = value
        elif match := re.fullmatch(rf"{PERSONAL}\.(\d+)\.(.+)", name):
            personal.setdefault(int(match[1]), {})[match[2]] = value
    return Models(server or None, [personal[batch] for batch in sorted(personal)] or None)
