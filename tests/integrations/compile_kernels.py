# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Compiles the kernels of kvcompress.gpu for a GPU that need not be there.

    python compile_kernels.py cuda|hip

Prints a line for each kernel: its name, the bytes of shared memory, and how many operations of
binary32 its assembly has that are fused, or flush subnormal numbers to 0.
"""

import re
import sys
from typing import Any

import triton  # type: ignore[import-not-found,unused-ignore]
from triton.backends.compiler import (  # type: ignore[import-not-found,unused-ignore]
    GPUTarget,
)
from triton.compiler import ASTSource  # type: ignore[import-not-found,unused-ignore]

from kvcompress.gpu import _ecsq_encode_kernels as ecsq_encoding
from kvcompress.gpu import _ecsq_kernels as ecsq
from kvcompress.gpu import _ecsq_quantize_kernels as ecsq_quantizing
from kvcompress.gpu import _encode_kernels as encoding
from kvcompress.gpu import _klt_kernels as klt
from kvcompress.gpu import _lossless_kernels as lossless
from kvcompress.gpu import _metrics_kernels as metrics
from kvcompress.gpu import _product_kernels as kernels
from kvcompress.gpu import _project_kernels as projecting
from kvcompress.gpu._basis import DEVICE_TILING
from kvcompress.gpu._encoding_tables import NARROW, NARROW_AMD, WIDE
from kvcompress.gpu._entropy_kernel import entropy_kernel
from kvcompress.gpu._integers_kernel import integers_kernel
from kvcompress.gpu._quantize_kernel import quantize_kernel

TARGETS = {"cuda": GPUTarget("cuda", 90, 32), "hip": GPUTarget("hip", "gfx942", 64)}
TYPES = {
    "*i64": "increments blocks tiles places token_slots tensors planes ends heads groups trials",
    "*i32": "classes low_runs slots levels found high_ends sums pairs scratch tables begins "
    "frequencies rows block_of quanta lasts symbols largest lows states sizes norms costs fits",
    "*fp32": "rotations factors channels left inverses thresholds scales turns",
    "*fp16": "encode",
    "*i16": "words bases",
    "*i8": "offsets low_plane high_plane basis",
    "*u8": "data payloads escapes out sinks exceptions",
    "*fp64": "squares energies borders",
    "i64": "first",
    "fp32": "scale",
}
TYPE_OF = {name: kind for kind, names in TYPES.items() for name in names.split()}
DIVISIBLE = {"low_width", "high_width", "basis_width", "width"}


def compile_kernel(kernel: Any, target: str, constants: dict[str, Any], **options: int) -> None:  # noqa: ANN401
    """Compiles one kernel, and prints what came of it."""
    names = kernel.arg_names
    signature = {name: TYPE_OF.get(name, "i32") for name in names}
    if kernel is kernels.finish_kernel:
        signature["sums"] = "*fp32"
    if kernel in (metrics.compare_kernel, metrics.total_kernel, metrics.means_kernel):
        signature |= dict.fromkeys(("sums", "ratios", "columns", "totals", "means"), "*fp64")
        signature = {name: signature[name] for name in names}
    if kernel is integers_kernel:
        signature |= {"outputs": "*i64", "found": "*u8"}
    if kernel is kernels.patch_kernel:
        signature["bits"] = f"*i{8 * constants['SIZE']}"
    if kernel in (lossless.coded_bytes_kernel, lossless.planes_kernel):
        signature["scratch"] = "*u8"
    if kernel is encoding.assemble_kernel:
        signature |= dict.fromkeys(("words", "lows", "states"), "*u8") | {"begins": "*i64"}
    if kernel is ecsq_encoding.assemble_block_kernel:
        signature |= dict.fromkeys(("words", "lows", "states"), "*u8") | {"rows": "*i64"}
    if kernel is ecsq_quantizing.measure_kernel:
        signature |= {"sums": "*fp64", "rows": "i32", "channels": "i32"}
    if kernel is ecsq_quantizing.quantize_block_kernel:
        signature |= {"means": "*i32", "rows": "i32"}
    if kernel is ecsq_quantizing.turn_back_kernel:
        signature["sums"] = "*fp32"
    if constants.get("NARROW"):
        signature["left"] = "*fp16"
    signature |= dict.fromkeys(constants, "constexpr")
    aligned = [name for name, kind in signature.items() if kind[0] == "*" or name in DIVISIBLE]
    attributes = {(names.index(name),): [["tt.divisibility", 16]] for name in aligned}
    values = {(names.index(name),): value for name, value in constants.items()}
    source = ASTSource(kernel, signature, values, attributes)
    compiled = triton.compile(
        source, target=TARGETS[target], options={"enable_fp_fusion": False, **options}
    )
    assembly = compiled.asm["ptx" if target == "cuda" else "amdgcn"]
    inexact = re.findall(r"\bfma\.rn\.f32|\.ftz\.|\bv_(?:pk_)?(?:fma|fmac)\w*_f32", assembly)
    print(kernel.__name__, compiled.metadata.shared, len(inexact))


def main(target: str) -> None:
    """Compiles all kernels."""
    tiles: dict[str, Any] = {"BM": DEVICE_TILING.rows, "NP": DEVICE_TILING.pairs}
    steps: dict[str, Any] = {"BM": DEVICE_TILING.rows, "BK": DEVICE_TILING.components}
    stages = 3 if target == "cuda" else 2
    compile_kernel(kernels.rotation_kernel, target, {"BLOCK": 256})
    for whole in (False, True):
        constants = {"TRELLIS": not whole, "WHOLE": whole, "PTX": target == "cuda"}
        compile_kernel(entropy_kernel, target, constants, num_warps=1)
    compile_kernel(kernels.row_sums_kernel, target, steps, num_warps=4)
    for dtype, aligned in (("BF16", True), ("F16", False)):
        form = {"DTYPE": dtype, "ALIGNED": aligned, "HIGH": aligned}
        options = {"num_warps": 8, "num_stages": stages}
        compile_kernel(kernels.product_kernel, target, steps | tiles | form, **options)
    form = {"DTYPE": "F32", "ALIGNED": True}
    compile_kernel(kernels.finish_kernel, target, tiles | form, num_warps=4)
    for size in (2, 4):
        form = {"SIZE": size, "BLOCK": 1024}
        compile_kernel(kernels.patch_kernel, target, form, num_warps=4)
    compile_singles(target)
    compile_encoders(target)
    compile_ecsq_encoder(target)


def compile_singles(target: str) -> None:
    """Compiles the kernels of payloads that are decoded one by one."""
    codecs = ((4, False), (8, True))
    types = (("BF16", 2), ("F32", 4))
    for (bits, fallback), (dtype, size) in zip(codecs, types, strict=True):
        form: dict[str, Any] = {"BITS": bits, "FALLBACK": fallback, "GROUP": 64, "BLOCK": 4096}
        form |= {"DTYPE": dtype, "SIZE": size, "SPLIT": fallback}
        compile_kernel(integers_kernel, target, form, num_warps=4)
    for bits, dtype in ((4, "BF16"), (8, "F32")):
        form = {"BITS": bits, "GROUP": 64, "BLOCK": 4096, "DTYPE": dtype, "SPLIT": False}
        compile_kernel(quantize_kernel, target, form, num_warps=4)
    compile_kernel(ecsq.ecsq_entropy_kernel, target, {"PTX": target == "cuda"}, num_warps=1)
    types = (("BF16", 2), ("F8_E4M3", 1))
    for dtype, size in types:
        form = {"DTYPE": dtype, "SIZE": size, "SPLIT": size == 1}
        elements = form | {"JOINT": size == 1, "BLOCK": 1024}
        compile_kernel(ecsq.ecsq_elements_kernel, target, elements, num_warps=4)
        compile_kernel(ecsq.ecsq_exceptions_kernel, target, form, num_warps=1)
    compile_kernel(klt.klt_entropy_kernel, target, {"PTX": target == "cuda"}, num_warps=1)
    for width in (16, 256, 1024):
        compile_kernel(klt.klt_reflectors_kernel, target, {"N": width}, num_warps=4)
        compile_kernel(klt.klt_basis_kernel, target, {"N": width, "BN": 8192 // width}, num_warps=4)
    tile = {"BM": 64, "BN": 64, "BK": 64}
    compile_kernel(klt.klt_product_kernel, target, tile, num_warps=4)
    compile_kernel(lossless.models_kernel, target, {}, num_warps=4)
    compile_kernel(lossless.coded_bytes_kernel, target, {"PTX": target == "cuda"}, num_warps=1)
    for name, size in (("16", 2), ("64", 8)):
        form = {"FORM": name, "SIZE": size, "SPLIT": size == 8, "BLOCK": 1024}
        compile_kernel(lossless.planes_kernel, target, form, num_warps=4)


def compile_encoders(target: str) -> None:
    """Compiles the kernels that encode groups."""
    rows, pairs, _ = DEVICE_TILING
    stages = 3 if target == "cuda" else 2
    for sizes in (NARROW if target == "cuda" else NARROW_AMD, WIDE):
        form: dict[str, Any] = {"BM": rows, "NP": pairs, "DTYPE": "BF16", "NARROW": sizes.narrow}
        form["ALIGNED"] = sizes.narrow
        compile_kernel(projecting.prepare_kernel, target, form, num_warps=8)
        form = {"BM": rows, "BN": sizes.columns, "BK": sizes.step, "NARROW": sizes.narrow}
        options = {"num_warps": sizes.warps, "num_stages": stages}
        compile_kernel(projecting.project_kernel, target, form, **options)
    for low in (False, True):
        form = {"LOW": low, "PTX": target == "cuda"}
        compile_kernel(encoding.encode_kernel, target, form, num_warps=1)
    compile_kernel(encoding.assemble_kernel, target, {"BLOCK": 1024}, num_warps=4)
    for dtype, aligned in (("BF16", True), ("F32", False)):
        form = {"BT": 32, "BD": 128, "STEPS": 16, "DTYPE": dtype, "ALIGNED": aligned}
        compile_kernel(metrics.compare_kernel, target, form, num_warps=4)
        form |= {"BT": 8, "BD": 512, "STEPS": 1} if aligned else {"BT": 4096, "BD": 1}
        compile_kernel(metrics.compare_kernel, target, form, num_warps=4)
    compile_kernel(metrics.total_kernel, target, {"BLOCK": 64}, num_warps=4)
    compile_kernel(metrics.means_kernel, target, {"BLOCK": 64, "BD": 128}, num_warps=4)


def compile_ecsq_encoder(target: str) -> None:
    """Compiles the kernels that encode with `ecsq`."""
    for dtype, rate in (("BF16", True), ("F32", False)):
        form: dict[str, Any] = {"DTYPE": dtype}
        compile_kernel(ecsq_quantizing.squares_kernel, target, form | {"BM": 64}, num_warps=4)
        compile_kernel(ecsq_quantizing.measure_kernel, target, form | {"BC": 256}, num_warps=4)
        block = form | {"RATE": rate, "BLOCK": 1024}
        compile_kernel(ecsq_quantizing.quantize_block_kernel, target, block, num_warps=4)
        compile_kernel(ecsq_quantizing.sinks_kernel, target, form | {"BD": 128}, num_warps=4)
        compile_kernel(ecsq_quantizing.turn_back_kernel, target, form | {"BP": 64}, num_warps=1)
    compile_kernel(ecsq_encoding.fit_kernel, target, {"BLOCK": 256}, num_warps=4)
    form = {"PTX": target == "cuda"}
    compile_kernel(ecsq_encoding.encode_block_kernel, target, form, num_warps=1)
    compile_kernel(ecsq_encoding.assemble_block_kernel, target, {"BLOCK": 1024}, num_warps=4)


if __name__ == "__main__":
    main(sys.argv[1])
