#!/usr/bin/python3
"""Trains one model with the same batch and the same number of ranks, one core per rank, in PyTorch (DDP over gloo)
and in Orrery. Prints the tokens/s of both, their ratio, and the difference of the losses.

    /usr/bin/python3 tests/bench/against_torch.py [--ranks 2] [--model gpt2] [--sequence 128] [--batch 4] [--steps 6]

Debian: apt-get install python3-torch python3-numpy libopenblas0-pthread, with OpenBLAS as the alternative for
libblas.so.3 (update-alternatives --display libblas.so.3-x86_64-linux-gnu). `orrery calibrate` must have run.
"""
import argparse
import json
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "golden"))
WARM_UP = 2
# Debian's old OpenBLAS does not recognise newer processors and falls back to slow kernels. Orrery selects better
# kernels for itself, so PyTorch gets the same ones.
BLAS_ENVIRONMENT = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def blas_core():
    flags = pathlib.Path("/proc/cpuinfo").read_text()
    return "SkylakeX" if "avx512f" in flags else "Haswell" if "avx2" in flags else None


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def torch_rank(rank, arguments, port, result_path):
    import torch
    import torch.distributed as distributed
    import torch.nn.functional as functional
    import torch_reference as reference

    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank,
                                   world_size=arguments.ranks)
    model = json.loads((ROOT / "models" / "zoo" / f"{arguments.model}.json").read_text())
    settings = reference.SETTINGS
    parameters, decayed = reference.make_parameters(model, settings["seed"])

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.names = list(parameters)
            self.tensors = torch.nn.ParameterList([torch.nn.Parameter(parameters[n].detach()) for n in self.names])

        def forward(self, tokens, targets):
            p = dict(zip(self.names, self.tensors))
            logits = reference.logits_of(model, p, tokens).flatten(0, 1)
            return functional.cross_entropy(logits, targets)

    module = Model()
    trained = torch.nn.parallel.DistributedDataParallel(module)
    named = dict(zip(module.names, module.tensors))
    optimizer = torch.optim.AdamW(
        [{"params": [t for n, t in named.items() if n in decayed], "weight_decay": settings["weight_decay"]},
         {"params": [t for n, t in named.items() if n not in decayed], "weight_decay": 0.0}],
        lr=settings["learning_rate"], betas=(settings["beta1"], settings["beta2"]), eps=settings["epsilon"])
    each = arguments.batch // arguments.ranks
    batches = []
    for step in range(WARM_UP + arguments.steps):
        first = step * arguments.batch + rank * each
        batches.append(torch.tensor([reference.sample_tokens(settings["seed"], model["vocab"], first + j,
                                                             arguments.sequence + 1) for j in range(each)]))
    losses, seconds = [], []
    for batch in batches:
        begin = time.monotonic()
        optimizer.zero_grad()
        loss = trained(batch[:, :-1], batch[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        distributed.barrier()
        seconds.append(time.monotonic() - begin)
        total = loss.detach().double()
        distributed.all_reduce(total)
        losses.append(total.item() / arguments.ranks)
    if rank == 0:
        pathlib.Path(result_path).write_text(json.dumps({"losses": losses, "step_seconds": seconds[WARM_UP:]}))


def run_torch(arguments, folder):
    import torch.multiprocessing as multiprocessing
    result = folder / "torch.json"
    multiprocessing.spawn(torch_rank, args=(arguments, free_port(), str(result)), nprocs=arguments.ranks)
    return json.loads(result.read_text())


def run_orrery(arguments, folder):
    plan = {
        "schema": "orrery.plan/1", "name": "against-torch", "model": arguments.model, "cluster": "local",
        "parallelism": {"dp": arguments.ranks},
        "training": {"sequence_length": arguments.sequence, "global_batch_size": arguments.batch,
                     "micro_batch_size": arguments.batch // arguments.ranks, "seed": 1234},
    }
    (folder / "plan.json").write_text(json.dumps(plan))
    record = folder / "record.json"
    subprocess.run([arguments.orrery, "run", str(folder / "plan.json"), "--quiet", "--warm-up", str(WARM_UP), "--steps",
                    str(arguments.steps), "--record", str(record)], check=True)
    return json.loads(record.read_text())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--orrery", default=str(ROOT / "build" / "release" / "orrery"))
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--model", default="gpt2", help="a GPT-2 or Llama of the model zoo")
    parser.add_argument("--sequence", type=int, default=128)
    parser.add_argument("--batch", type=int, default=4, help="sequences in a global batch")
    parser.add_argument("--steps", type=int, default=6)
    arguments = parser.parse_args()
    if arguments.batch % arguments.ranks != 0:
        parser.error(f"--batch: got {arguments.batch}; allowed: a multiple of --ranks, {arguments.ranks}")
    os.environ.update(BLAS_ENVIRONMENT)
    if blas_core() is not None:
        os.environ.setdefault("OPENBLAS_CORETYPE", blas_core())
    tokens = arguments.batch * arguments.sequence
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        results = {"PyTorch": run_torch(arguments, folder), "Orrery": run_orrery(arguments, folder)}
    rates = {}
    for who, result in results.items():
        median = statistics.median(result["step_seconds"])
        rates[who] = tokens / median
        print(f"{who:8} {median * 1e3:9.1f} ms/step {rates[who]:9.1f} tokens/s")
    apart = max(abs(a - b) / b for a, b in zip(results["Orrery"]["losses"], results["PyTorch"]["losses"]))
    print(f"ratio    {rates['Orrery'] / rates['PyTorch']:9.2f}   losses at most {apart:.1e} apart")


if __name__ == "__main__":
    main()
