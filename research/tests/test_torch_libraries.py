# ruff: noqa: E402 (what follows the skip needs torch)
"""timm and open_clip are imported beside any build of torchvision, and other failures are not hidden."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="the extra 'torch' is not installed")

from visterm_research.encoders import torch_libraries


def failing_once(error, calls):
    def import_module(name):
        calls.append(name)
        if len(calls) == 1:
            raise error
        return name

    return import_module


def test_a_torchvision_of_another_build_of_torch_is_imported_once_its_operators_are_declared(monkeypatch):
    calls = []
    error = RuntimeError("operator torchvision::nms does not exist")
    monkeypatch.setattr(torch_libraries, "import_module", failing_once(error, calls))
    monkeypatch.setattr(torch_libraries, "_declare_operators", lambda: calls.append("declared"))
    assert torch_libraries.torch_library("timm") == "timm"
    assert calls == ["torchvision", "declared", "torchvision", "timm"]


@pytest.mark.parametrize("error", [RuntimeError("no memory"), ModuleNotFoundError("No module", name="torchvision")])
def test_what_else_goes_wrong_is_not_hidden(monkeypatch, error):
    monkeypatch.setattr(torch_libraries, "import_module", failing_once(error, []))
    with pytest.raises(type(error), match=str(error)):
        torch_libraries.torch_library("timm")


def test_both_libraries_are_there_and_torchvision_knows_its_operators():
    for name in ("timm", "open_clip"):
        assert torch_libraries.torch_library(name).__name__ == name
    assert torch.ops.torchvision.nms
