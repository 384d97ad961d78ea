# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The encoder of tensors on a device."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from os import PathLike

import torch  # type: ignore[import-not-found,unused-ignore]

from kvcompress._arrays import TORCH_TYPES
from kvcompress._client import Client
from kvcompress._model_config import ModelConfig
from kvcompress._reports import CompressionReport
from kvcompress._torch_tensors import dtype_name
from kvcompress.errors import InvalidArgumentError, UnimplementedError
from kvcompress.gpu._artefact import check_texts, write_artefact
from kvcompress.gpu._decoder import Decoder
from kvcompress.gpu._device import on_stream
from kvcompress.gpu._ecsq_coding import EcsqCoding
from kvcompress.gpu._groups import tensor_name
from kvcompress.gpu._parts import (
    Coding,
    IntegerCoding,
    ProfileCoding,
    group_numbers,
    latent_sources,
    view_in,
)
from kvcompress.gpu._quantizing import Source
from kvcompress.gpu._report import Measured, report_of
from kvcompress.gpu._target import read_slots

_NAMES = {torch_name: name for name, torch_name in TORCH_TYPES.items()}
_GROUPS = ("32", "64", "128")
_PLAIN = "bhtd"
_POSITION_KEY = "first_token"
_MAX_POSITION = 1 << 32


@dataclass(frozen=True)
class Encoded:
    """The result of `Encoder.encode`.

    Attributes:
        data: The whole file, a tensor of uint8 on the host; pinned where a device encoded, so that
            a Decoder copies from it.
        report: Sizes and quality, as the service reports them, under the default thresholds.
        fallback: Why the client encoded on the host instead; empty where the device did.
    """

    data: torch.Tensor
    report: CompressionReport
    fallback: str

    @cached_property
    def artefact(self) -> bytes:
        """The whole file as bytes, a copy."""
        return bytes(self.data.numpy())


class Encoder:
    """Encodes tensors on a device: `int4`, `int8` and `ecsq` as the service does, and `klt`.

    `klt` needs a profile, and writes artefacts of `klt-profile` with the service's choices at
    normal effort. Not thread safe.

    Args:
        codec: `int4`, `int8`, or with the size of groups `int4:32`; without it 64. Or `ecsq`, with
            a preset or two steps as in `ecsq:high` and `ecsq:0.5,0.6`; without them `contract`. Or
            `klt` with a preset of the profile, such as `klt:high`.
        device: Of the tensors: a GPU, or with TRITON_INTERPRET=1 the CPU.
        profile: Path or bytes of the profile, for `klt`.
        client: What encodes on the host where the device cannot: tensors of other types than F32,
            F16 and BF16, for `klt` those that are in no group of the profile that the cache has
            whole, and for `ecsq` latents, or all where a head has channels before the rotated
            ones. None refuses them. Its server has the profile.
        block_tokens: Tokens of a block of `klt`, 16 to 256. Shorter ones are decoded faster where
            a prefix is short, and take more bytes.
        scratch: Bytes of the buffers of `klt` and `ecsq` whose size goes with the tokens that are
            encoded at once. A block takes what it needs.
        rope_theta: For `ecsq`, the base of the rotary embedding of the keys, such as 10000; 0 when
            they have none. Default: the metadata key `rope_theta`, else found out.
        model_config: For `ecsq`, the path of the model's config.json or what is in it, which says
            all of that embedding. Not together with `rope_theta`.

    Attributes:
        codec: `int4`, `int8`, `ecsq` or `klt`.
        device: Of the tensors, with its number.

    Raises:
        InvalidArgumentError: The codec is not one of those, the profile is damaged, or the device
            is not one for Triton as it was imported.
        OSError: The profile or the configuration cannot be read.
        ValueError: The configuration does not say what the rotary embedding is.
    """

    def __init__(
        self,
        codec: str = "int4",
        device: str | torch.device = "cuda",
        *,
        profile: str | PathLike[str] | bytes | None = None,
        client: Client | None = None,
        block_tokens: int = 256,
        scratch: int = 1 << 30,
        rope_theta: float | None = None,
        model_config: ModelConfig | None = None,
    ) -> None:
        """Checks the codec and the device, and sends the profile."""
        name, _, parameters = codec.partition(":")
        self.codec, self._decoder = name, Decoder(profile, device, scratch=scratch)
        self.device, self._client = self._decoder.device, client
        self._coding: Coding
        if name != "ecsq" and not (rope_theta is None and model_config is None):
            raise InvalidArgumentError(
                f"rope_theta and model_config are for ecsq, not for {codec!r}",
                reason="INVALID_OPTIONS",
                field="options.rope_theta",
            )
        if name in ("int4", "int8") and (parameters or "64") in _GROUPS:
            self._coding = IntegerCoding(int(name[3:]), int(parameters or "64"), self.device)
        elif name == "ecsq":
            self._coding = EcsqCoding(parameters, scratch, rope_theta, model_config)
        elif name == "klt" and self._decoder.profile is not None:
            bases = self._decoder.bases
            self._coding = ProfileCoding(
                self._decoder.profile, parameters, bases, self.device, block_tokens, scratch
            )
        else:
            raise InvalidArgumentError(
                f"the device does not encode {codec!r}: int4 and int8 with groups of 32, 64 or 128 "
                "elements, such as int4:64, ecsq, and klt with a profile, such as klt:high; use a "
                "Client for others",
                reason="INVALID_CODEC_OPTION",
                field="options.codec",
            )

    def encode(
        self,
        tensors: Mapping[str, torch.Tensor],
        *,
        labels: Mapping[str, str] | None = None,
        metadata: Mapping[str, str] | None = None,
        slots: torch.Tensor | None = None,
        layout: str = _PLAIN,
        first_token: int = 0,
        stream: "torch.cuda.Stream | None" = None,
    ) -> Encoded:
        """Encodes tensors to an artefact; only compressed bytes and sums leave the device.

        Args:
            tensors: By name, in order, on the device: [batch, heads, tokens, head_dim] of any
                strides, or others in C order.
            labels: Bound to the artefact.
            metadata: Of the artefact, in the order of its keys.
            slots: Of a paged cache: where each token is, integers from 0 on that differ. All
                tensors are then [slots, heads, head_dim] of any strides, and the artefact has
                them as [1, heads, tokens, head_dim].
            layout: Of all tensors: `bhtd`, or such as `t(d+r):d=512` of latents [tokens, channels],
                with slots [slots, channels], of which 512 come before the rotated ones.
            first_token: For `klt`, the position of the first token in the model's input. The
                metadata key `first_token` comes before it.
            stream: Where the kernels are launched. Default: the current one.

        Raises:
            InvalidArgumentError: An argument does not fit, an element is NaN or infinity (reason
                `NOT_FINITE`), or too large for the scale of its group (`SCALE_OVERFLOW`).
            FailedPreconditionError: The stream records a CUDA graph.
            UnimplementedError: There are tensors for the host, and no client.
            KVCompressError: The client cannot encode.
        """
        began = time.monotonic()
        labels = dict(labels or {})
        texts = dict(sorted((metadata or {}).items()))
        check_texts(labels, texts)
        if _POSITION_KEY in texts and texts[_POSITION_KEY].isdecimal():
            first_token = int(texts[_POSITION_KEY])
        if not 0 <= first_token < _MAX_POSITION:
            raise InvalidArgumentError(
                f"first_token is {first_token}, and positions are below 2^32", limit=_MAX_POSITION
            )
        with on_stream(self.device, stream):
            gathered = self._gathered(tensors, slots, layout)
            return self._encode(gathered, layout, labels, texts, first_token, began)

    def _encode(
        self,
        tensors: Mapping[str, torch.Tensor],
        layout: str,
        labels: Mapping[str, str],
        metadata: Mapping[str, str],
        first_token: int,
        began: float,
    ) -> Encoded:
        """Encodes, decodes again what was written, and measures it."""
        coding, sources = self._coding, self._sources(tensors, layout)
        if refused := coding.refusal(sources):
            return self._fall_back(tensors, layout, refused, labels, metadata)
        parts = coding.parts(sources, first_token, metadata)
        written = write_artefact(parts, labels, metadata, coding.profile, self.device)
        decoded = self._decoder.decode(written.data).tensors
        groups = group_numbers(coding, [source.entry for source in sources])
        measured = []
        for (entry, tensor), part, digest in zip(sources, parts, written.digests, strict=True):
            restored = view_in(entry, decoded[tensor_name(entry)])
            group = groups.get(entry.name)
            measured.append(Measured(entry, part, digest, tensor, restored, group))
        seconds = time.monotonic() - began
        report = report_of(coding, measured, written, first_token, seconds)
        return Encoded(written.data, report, "")

    def _sources(self, tensors: Mapping[str, torch.Tensor], layout: str) -> list[Source]:
        """The tensors, or their views in a layout, and their entries."""
        wholes = [
            Source(self._coding.entry(name, self._dtype(each), tuple(each.shape)), each)
            for name, each in tensors.items()
        ]
        if layout == _PLAIN:
            return wholes
        return [source for whole in wholes for source in latent_sources(whole, layout)]

    def _gathered(
        self, tensors: Mapping[str, torch.Tensor], slots: torch.Tensor | None, layout: str
    ) -> dict[str, torch.Tensor]:
        """The tensors, those of a paged cache as what the artefact has of them."""
        for name, tensor in tensors.items():
            if tensor.device != self.device:
                raise InvalidArgumentError(
                    f"tensor {name!r} is on {tensor.device}, and the encoder on {self.device}",
                    tensor=name,
                )
        tensors = {name: tensor.detach() for name, tensor in tensors.items()}
        if slots is None:
            return tensors
        places = torch.from_numpy(read_slots(slots))
        if (places < 0).any():
            raise InvalidArgumentError("a slot of -1 has nothing to encode: leave it out")
        most = int(places.max()) + 1 if len(places) else 0
        form = "[slots, heads, head_dim]" if layout == _PLAIN else "[slots, channels]"
        for name, tensor in tensors.items():
            if tensor.dim() != len(form.split()) or tensor.shape[0] < most:
                raise InvalidArgumentError(
                    f"tensor {name!r} is {list(tensor.shape)}: a paged cache is {form}, here of "
                    f"{most} slots at least",
                    tensor=name,
                )
        where = places.to(self.device)
        rows = {name: tensor.index_select(0, where) for name, tensor in tensors.items()}
        if layout != _PLAIN:
            return rows
        return {name: each.transpose(0, 1).unsqueeze(0) for name, each in rows.items()}

    def _dtype(self, tensor: torch.Tensor) -> str:
        """The type of a tensor as files name it."""
        return _NAMES.get(dtype_name(tensor), "")

    def _fall_back(
        self,
        tensors: Mapping[str, torch.Tensor],
        layout: str,
        refused: tuple[str, str],
        labels: Mapping[str, str],
        metadata: Mapping[str, str],
    ) -> Encoded:
        """Encodes on the host what the device cannot."""
        name, reason = refused
        if self._client is None:
            raise UnimplementedError(
                f"the device does not encode tensor {name!r}: {reason}; give the Encoder a client",
                tensor=name,
            )
        options = dict(self._coding.options)
        if layout != _PLAIN:
            options["layout"] = layout
        result = self._client.compress(
            tensors,
            codec=self._coding.name,
            labels=labels,
            metadata=metadata,
            **options,
        )
        data = torch.frombuffer(bytearray(result.artefact or b""), dtype=torch.uint8)
        return Encoded(data, result.report, f"tensor {name!r}: {reason}")
