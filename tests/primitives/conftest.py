"""Kernels with bugs that are planted in the code generators."""

import pytest

from eagerflow.codegen.llvm import launch
from eagerflow.primitives import matrix_product
from eagerflow.runtime import machine_code


@pytest.fixture
def compiled_anew(monkeypatch):
    """Kernels are made now, and not kept."""

    def compiled(own, text, target):
        content = machine_code.compile_object(text(), target)
        return lambda: content

    monkeypatch.setattr(matrix_product, "kernel", matrix_product.kernel.__wrapped__)
    monkeypatch.setattr(matrix_product, "prepared", matrix_product.prepared.__wrapped__)
    monkeypatch.setattr(launch, "compiled", compiled)
