# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Runs vLLM once over prompts of token numbers, and says what came from where.

    python vllm_engine.py < JOB.json > RESULT.json

A process of its own, so that nothing but files is left for the next one. The job has `model`,
`extra` (kv_connector_extra_config; null for none), `tokens` to generate, `max_model_len`, `events`
(the port at which vLLM publishes KV events, and where they are received), `adapter` (the folder of
a LoRA adapter that all prompts have), and `requests`. Each is a list of token numbers, or one of

    {"reset": true}           empties the engine's own cache and the primary tier; false: that alone
    {"predict": [NUMBERS]}    notes the probabilities of all tokens after a prompt
    {"together": [[NUMBERS]], "tokens": N}  runs prompts at the same time, of N tokens each
    {"run": [COMMAND...]}     runs a command
    {"freeze": PID}           stops a process without an end; {"thaw": PID} lets it go on
    {"kill_in_load": PID}     kills a process as soon as it was asked to restore something

The result has for each prompt `tokens`, `served` (tokens that were not computed), `seconds` to the
first token and how many of them it was `restoring`, all counters of the connector at the end, and
`events`: of each its type, its medium and its hashes.
What was predicted goes to the file `predictions`, a NumPy array of log-probabilities.
"""

import json
import os
import signal
import subprocess
import sys
import time
from threading import Timer
from typing import Any

from engine import keep_plain_layout, repair_scan
from processes import freeze

from kvcompress.integrations._artefact_folder import ArtefactFolder

_IN_CALL = 0.3  # seconds of a call before its server is killed


def engine_of(job: dict[str, Any]) -> Any:  # noqa: ANN401
    """Starts an engine on the CPU."""
    from vllm import EngineArgs, LLMEngine  # type: ignore[import-not-found,unused-ignore]
    from vllm.config import (  # type: ignore[import-not-found,unused-ignore]
        KVEventsConfig,
        KVTransferConfig,
    )

    transfer = None
    if job["extra"] is not None:
        transfer = KVTransferConfig(
            kv_connector=job.get("connector", "KVCompressConnector"),
            kv_connector_module_path=job.get("module", "kvcompress.integrations.vllm"),
            kv_role="kv_both",
            kv_connector_extra_config=job["extra"],
        )
    events = None
    if "events" in job:
        events = KVEventsConfig(
            enable_kv_cache_events=True,
            publisher="zmq",
            endpoint=f"tcp://*:{job['events']}",  # to which others connect
            topic="kv",
        )
    arguments = EngineArgs(
        model=job["model"],
        dtype=job.get("dtype", "bfloat16"),
        max_model_len=job["max_model_len"],
        enforce_eager=True,
        distributed_executor_backend="uni",
        enable_prefix_caching=True,
        kv_transfer_config=transfer,
        kv_events_config=events,
        disable_log_stats=False,
        max_logprobs=-1,
        seed=0,
        **job.get("arguments", {}),
    )
    return LLMEngine.from_engine_args(arguments, enable_multiprocessing=False)


def run(
    engine: Any,  # noqa: ANN401
    number: int,
    prompt: list[int],
    tokens: int,
    adapter: str | None,
) -> dict[str, Any]:
    """Runs one prompt to its end, greedily."""
    from vllm import SamplingParams
    from vllm.lora.request import LoRARequest  # type: ignore[import-not-found,unused-ignore]

    parameters = SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True)
    lora = None if adapter is None else LoRARequest("adapter", 1, adapter)
    request = {"prompt_token_ids": prompt}
    engine.add_request(f"request-{number}", request, parameters, lora_request=lora)
    began, first, output = time.monotonic(), None, None
    while engine.has_unfinished_requests():
        outputs = engine.step()
        for output in outputs:
            if first is None and output.outputs and output.outputs[0].token_ids:
                first = time.monotonic() - began
        if not outputs:
            # As vLLM's own loop does, for the threads that transfer.
            time.sleep(0.001)
    if output is None:
        raise RuntimeError("the engine gave nothing")
    return {
        "tokens": list(output.outputs[0].token_ids),
        "served": output.num_cached_tokens,
        "seconds": first,
        "all_seconds": time.monotonic() - began,
    }


def together(engine: Any, number: int, prompts: list[list[int]], tokens: int) -> list[Any]:  # noqa: ANN401
    """Runs prompts at the same time, greedily; returns the results in their order."""
    from vllm import SamplingParams

    parameters = SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True)
    names = [f"request-{number}-{index}" for index in range(len(prompts))]
    for name, prompt in zip(names, prompts, strict=True):
        engine.add_request(name, {"prompt_token_ids": prompt}, parameters)
    found: dict[str, Any] = {}
    while engine.has_unfinished_requests():
        found |= {output.request_id: output for output in engine.step()}
    return [
        {"tokens": list(found[name].outputs[0].token_ids), "served": found[name].num_cached_tokens}
        for name in names
    ]


def predict(engine: Any, number: int, prompt: list[int]) -> Any:  # noqa: ANN401
    """Returns the log-probabilities of all tokens after a prompt."""
    import numpy as np
    from vllm import SamplingParams

    parameters = SamplingParams(temperature=0, max_tokens=1, logprobs=-1, detokenize=False)
    engine.add_request(f"prediction-{number}", {"prompt_token_ids": prompt}, parameters)
    outputs: list[Any] = []
    while engine.has_unfinished_requests():
        outputs += engine.step()
    [found] = outputs[-1].outputs[0].logprobs
    row = np.zeros(max(found) + 1)
    for token, value in found.items():
        row[token] = value.logprob
    return row


def between(engine: Any, what: dict[str, Any], restores: "Restores") -> None:  # noqa: ANN401
    """Does what a job wants done between prompts."""
    if "freeze" in what:
        freeze(what["freeze"])
    if "thaw" in what:
        os.kill(what["thaw"], signal.SIGCONT)
    if "kill_in_load" in what:
        restores.victim = what["kill_in_load"]
    if "reset" in what and not engine.reset_prefix_cache(reset_connector=what["reset"]):
        raise RuntimeError("the engine's cache is in use")
    if "run" in what:
        subprocess.run(what["run"], check=True)


class Restores:
    """Notes when calls that restore artefacts begin and end; may have a server killed in one."""

    def __init__(self) -> None:
        """Takes the place of the calls."""
        self.times: list[float] = []
        self.victim: int | None = None
        restore = ArtefactFolder.restore

        def noted(folder: ArtefactFolder, *arguments: Any) -> Any:  # noqa: ANN401
            self.times.append(time.monotonic())
            victim, self.victim = self.victim, None
            if victim is not None:
                freeze(victim)  # or it might answer in the meantime
                Timer(_IN_CALL, os.kill, (victim, signal.SIGKILL)).start()
            try:
                return restore(folder, *arguments)
            finally:
                self.times.append(time.monotonic())

        ArtefactFolder.restore = noted  # type: ignore[method-assign, assignment]

    def seconds(self) -> float:
        """Returns the time from the first to the last since it was asked for."""
        times, self.times = self.times, []
        return max(times) - min(times) if times else 0.0


class Subscriber:
    """Receives what vLLM publishes to routers."""

    def __init__(self, port: int) -> None:
        """Connects."""
        import zmq  # type: ignore[import-not-found,unused-ignore]

        self._nothing = zmq.Again
        self._socket = zmq.Context.instance().socket(zmq.SUB)
        self._socket.setsockopt_string(zmq.SUBSCRIBE, "kv")
        self._socket.setsockopt(zmq.RCVTIMEO, 2000)
        self._socket.connect(f"tcp://127.0.0.1:{port}")

    def events(self) -> list[dict[str, Any]]:
        """Returns all events so far: none comes for two seconds."""
        import msgspec  # type: ignore[import-not-found,unused-ignore]
        from vllm.distributed.kv_events import (  # type: ignore[import-not-found,unused-ignore]
            KVEventBatch,
        )

        decoder = msgspec.msgpack.Decoder(type=KVEventBatch)
        found: list[dict[str, Any]] = []
        while True:
            try:
                _, _, payload = self._socket.recv_multipart()
            except self._nothing:
                return found
            for event in decoder.decode(payload).events:
                hashes = [str(each) for each in getattr(event, "block_hashes", [])]
                medium = getattr(event, "medium", None)
                found.append({"type": type(event).__name__, "medium": medium, "hashes": hashes})


def settle(engine: Any, most: float = 120.0) -> None:  # noqa: ANN401
    """Lets transfers end: they go on with the engine's steps.

    Raises:
        TimeoutError: They do not end.
    """
    scheduler = engine.engine_core.engine_core.scheduler
    until = time.monotonic() + most
    while scheduler.has_requests():
        if time.monotonic() > until:
            raise TimeoutError("transfers do not end")
        engine.step()
        time.sleep(0.01)


def counters() -> dict[str, float]:
    """Returns the counters of offloading, and of preemptions."""
    from prometheus_client import (  # type: ignore[import-not-found,unused-ignore]
        REGISTRY,
    )

    return {
        f"{sample.name}{sorted(sample.labels.items())}": sample.value
        for metric in REGISTRY.collect()
        for sample in metric.samples
        if sample.name.endswith("_total")
        and ("kv_offload" in sample.name or "num_preemptions" in sample.name)
    }


def main() -> None:
    """Runs the job."""
    job = json.load(sys.stdin)
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    fast = os.dup(1)
    os.dup2(2, 1)
    repair_scan()
    keep_plain_layout()
    restores = Restores()
    engine = engine_of(job)
    subscriber = Subscriber(job["events"]) if "events" in job else None
    results, predictions = [], []
    for number, request in enumerate(job["requests"]):
        if "predict" in request:
            predictions.append(predict(engine, number, request["predict"]))
            settle(engine)
        elif "together" in request:
            results += together(engine, number, request["together"], request["tokens"])
            settle(engine)
        elif isinstance(request, dict):
            between(engine, request, restores)
        else:
            result = run(engine, number, request, job["tokens"], job.get("adapter"))
            results.append({**result, "restoring": restores.seconds()})
            settle(engine)
    if predictions:
        import numpy as np

        np.save(job["predictions"], np.stack(predictions))
    found = counters()
    events = [] if subscriber is None else subscriber.events()
    engine.engine_core.shutdown()
    with os.fdopen(fast, "w") as file:
        json.dump({"results": results, "counters": found, "events": events}, file)


if __name__ == "__main__":
    main()
