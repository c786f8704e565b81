"""A device that is pretended, made known to torch once in a process."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
import torch

AtHand = Callable[[], AbstractContextManager[torch.device]]


@pytest.fixture(scope="session")
def at_hand() -> AtHand:
    """`pretend.at_hand`: within it tensors can be made on the device and moved to it."""
    spec = importlib.util.spec_from_file_location("pretend", Path(__file__).with_name("pretend.py"))
    assert spec is not None
    assert spec.loader is not None
    pretend = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(pretend)
    found: AtHand = pretend.at_hand
    return found
