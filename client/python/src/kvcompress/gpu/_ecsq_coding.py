# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Encodes caches with `ecsq`: rotations, steps, and trials of `contract`."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch  # type: ignore[import-not-found,unused-ignore]

from kvcompress._model_config import ModelConfig, rope_parameters
from kvcompress.errors import InvalidArgumentError
from kvcompress.gpu._artefact import Part
from kvcompress.gpu._ecsq_choices import OUTLIER, Job, read_steps
from kvcompress.gpu._ecsq_contract import Pieces, encode_contract
from kvcompress.gpu._ecsq_encoding import EcsqEncoding
from kvcompress.gpu._ecsq_integers import integer_payload
from kvcompress.gpu._ecsq_plan import NUMBER_BYTES, Plan
from kvcompress.gpu._parts import entry_text, other_type
from kvcompress.gpu._place import cut_by_size
from kvcompress.gpu._profile import Profile
from kvcompress.gpu._quantizing import Source, refuse_infinite
from kvcompress.gpu._roles import role_of
from kvcompress.gpu._rope import Declared, is_theta, read_theta
from kvcompress.gpu._rope_trials import find_rotations
from kvcompress.payload import payload_size
from kvcompress.payload._codec import Entry
from kvcompress.v1 import rope_pb2

_THETA_KEY = "rope_theta"


class EcsqCoding:
    """`ecsq`.

    Args:
        parameters: Of the codec.
        scratch: Bytes of the buffers whose size goes with the tokens that are encoded at once.
        rope_theta: The base of the rotary embedding of keys, 0 for none.
        model_config: What a model's configuration says of it, instead.

    Raises:
        InvalidArgumentError: An argument is none that there can be.
        OSError: The configuration cannot be read.
        ValueError: It does not say what the embedding is.
    """

    def __init__(
        self,
        parameters: str,
        scratch: int,
        rope_theta: float | None,
        model_config: ModelConfig | None,
    ) -> None:
        """Reads the parameters and the configuration."""
        self.steps = read_steps(parameters)
        self.name = f"ecsq:{self.steps.text}"
        self.profile: Profile | None = None
        self.options: Mapping[str, Any] = {"rope_theta": rope_theta, "model_config": model_config}
        self._scratch = scratch
        rope = None if model_config is None else rope_parameters(model_config)
        if rope_theta is not None and (rope is not None or not is_theta(rope_theta)):
            raise InvalidArgumentError(
                "rope_theta is 0 or a number from 1 to 1e12, and not together with model_config",
                reason="INVALID_OPTIONS",
                field="options.rope_theta",
            )
        self._declared = Declared(rope, rope_theta)

    def entry(self, name: str, dtype: str, shape: tuple[int, ...]) -> Entry:
        """The entry of a tensor in the manifest, without digest and place."""
        return Entry(name, self.name, dtype, shape, *role_of(name), "", 0, 0)

    def refusal(self, sources: Sequence[Source]) -> tuple[str, str] | None:
        """The name of a tensor of another type, or of one with a latent, and the reason."""
        if other := other_type(sources):
            return other
        for entry, _ in sources:
            if entry.view is not None:
                return entry.name, "it is of a latent, whose rotated part has finer steps"
        rope = self._declared.parameters
        if sources and rope is not None and any(each.first_channel for each in rope.embeddings):
            return sources[0].entry.name, "its model has channels before the rotated ones"
        return None

    def parts(
        self, sources: Sequence[Source], first_token: int, metadata: Mapping[str, str]
    ) -> list[Part]:
        """Encodes the tensors, wherever they begin.

        Raises:
            InvalidArgumentError: An element is NaN or infinity, or a key cannot have the rotary
                embedding that was declared.
        """
        declared = self._declared
        if not declared and _THETA_KEY in metadata:
            declared = Declared(None, read_theta(metadata[_THETA_KEY]))
        jobs = [Job(source, _laid_out(source), self.steps) for source in sources]
        whole = self._largest(jobs)
        pieces: dict[int, Pieces] = {}
        for dtype in dict.fromkeys(source.entry.dtype for source in sources):
            numbers = [i for i, job in enumerate(jobs) if job.entry.dtype == dtype and i in whole]
            plain = [i for i in numbers if not jobs[i].codable(whole[i])]
            pieces |= {i: [integer_payload(jobs[i])] for i in plain}
            own = [i for i in numbers if i not in plain]
            sizes = [NUMBER_BYTES * jobs[i].tensor.numel() for i in own]
            for part, _ in cut_by_size(sizes, self._scratch):
                found = self._encode([jobs[i] for i in own[part]], declared)
                pieces |= dict(zip(own[part], found, strict=True))
        parts = []
        for number, job in enumerate(jobs):
            entry, own_pieces = job.entry, pieces.get(number, [])
            bound = payload_size(entry.codec, entry.shape, entry.dtype, entry.role)
            rope = _finding(job, declared) if len(own_pieces) > 1 else None
            parts.append(Part(entry.name, entry_text(entry), own_pieces, bound, rope))
        return parts

    def _largest(self, jobs: Sequence[Job]) -> dict[int, float]:
        """The largest magnitude of each tensor that has elements; hides outliers."""
        some = [i for i, job in enumerate(jobs) if job.tensor.numel()]
        if not some:
            return {}
        ends = [torch.stack(torch.aminmax(jobs[i].tensor)).to(torch.float32) for i in some]
        largest = dict(zip(some, torch.stack(ends).abs().amax(1).tolist(), strict=True))
        for number, most in largest.items():
            if not math.isfinite(most):
                refuse_infinite(jobs[number].source, "ecsq")
            if self.steps.contract and most > OUTLIER:
                jobs[number].hide(int((jobs[number].tensor.abs() > OUTLIER).sum()))
        return largest

    def _encode(self, jobs: Sequence[Job], declared: Declared) -> list[Pieces]:
        """Encodes tensors of one type that have elements."""
        self._rotate(jobs, declared)
        plan = Plan(jobs, self._scratch)
        encoding = EcsqEncoding(plan)
        encoding.find_norms()
        for job, (square_sum, largest) in zip(jobs, encoding.measure().tolist(), strict=True):
            heads, tokens, channels = job.shape
            job.want(square_sum, heads * (tokens - 1) * channels, largest)
        if self.steps.contract:
            return encode_contract(jobs, self._scratch)
        for job in jobs:
            job.begin_trial()
        coded = encoding.encode(rate=True, checks=False)
        return [
            coded.pieces(plan, number) if coded.fits(plan, number) else [integer_payload(job)]
            for number, job in enumerate(jobs)
        ]

    def _rotate(self, jobs: Sequence[Job], declared: Declared) -> None:
        """Finds the rotations of keys."""
        keys = [job for job in jobs if job.role == "k"]
        if not keys:
            return
        candidates = [
            declared.rotations(job.entry.name, job.entry.layer, job.shape[2]) for job in keys
        ]
        found = find_rotations(Plan(keys, self._scratch), candidates)
        for job, rotation in zip(keys, found, strict=True):
            job.rotation = rotation


def _laid_out(source: Source) -> torch.Tensor:
    """A tensor of four dimensions of any strides, or one in C order."""
    if len(source.entry.shape) == 3:
        return source.tensor.unsqueeze(0)
    return source.tensor if len(source.entry.shape) == 4 else source.tensor.contiguous()


def _finding(job: Job, declared: Declared) -> rope_pb2.RopeFinding | None:
    """What reports say of the rotation of a tensor."""
    if job.rotation is None:
        return None
    return rope_pb2.RopeFinding(embedding=job.rotation.embedding, declared=bool(declared))
