#!/usr/bin/env python3
"""Times training steps of PyTorch and Hugging Face Transformers on this machine's first GPU.

Writes a table of runs (orrery.published_runs/1), which `orrery validate --rows FILE` predicts:

    python3 tests/bench/torch_training.py --output torch.json
    orrery validate --rows torch.json --verbose

Weights and tokens are random, dropout is 0. Parameters, gradients and moments are fp32, computation is autocast to bf16,
attention is scaled_dot_product_attention, and the optimizer is fused AdamW. A step is forward, backward, clipping to norm 1
and the update; the median over the measured steps counts.
"""
import argparse
import json
import platform
import statistics
import sys
import time

import torch
import transformers

GPT2 = {"name": "gpt2", "layers": 12, "hidden": 768, "heads": 12, "kv_heads": 12, "ffn_hidden": 3072, "vocab": 50257,
        "gated_mlp": False, "tied_embeddings": True}
# The vocabulary padded to a multiple of 128, and a GELU of one kernel: Transformers' own for GPT-2 is eight.
GPT2_PADDED = GPT2 | {"name": "gpt2-padded", "vocab": 50304}
GPT2_XL = GPT2 | {"name": "gpt2-xl", "layers": 48, "hidden": 1600, "heads": 25, "kv_heads": 25, "ffn_hidden": 6400}
LLAMA_1B = {"name": "llama-1b", "layers": 16, "hidden": 2048, "heads": 32, "kv_heads": 8, "ffn_hidden": 8192,
            "vocab": 32000, "gated_mlp": True, "tied_embeddings": False}
# Layers as those of Llama-3-8B, as many as fit into 80 GB with fp32 states.
LLAMA_8B_LAYERS = LLAMA_1B | {"name": "llama-8b-8-layers", "layers": 8, "hidden": 4096, "heads": 32, "kv_heads": 8,
                              "ffn_hidden": 14336, "vocab": 128256}

# model, sequence length, micro-batch, micro-batches a step, activation checkpointing of whole layers
CASES = [
    (GPT2, 1024, 4, 1, False),
    (GPT2, 1024, 16, 1, False),
    (GPT2_PADDED, 1024, 4, 1, False),
    (GPT2_PADDED, 1024, 16, 1, False),
    (GPT2_XL, 1024, 4, 1, False),
    (GPT2_XL, 1024, 8, 4, True),
    (LLAMA_1B, 2048, 1, 1, False),
    (LLAMA_1B, 2048, 8, 1, False),
    (LLAMA_1B, 4096, 4, 4, True),
    (LLAMA_8B_LAYERS, 4096, 1, 1, False),
    (LLAMA_8B_LAYERS, 8192, 1, 4, False),
    (LLAMA_8B_LAYERS, 8192, 1, 4, True),
]


def make_model(spec, sequence):
    common = {"vocab_size": spec["vocab"], "use_cache": False, "attn_implementation": "sdpa"}
    if spec["gated_mlp"]:
        config = transformers.LlamaConfig(
            hidden_size=spec["hidden"], intermediate_size=spec["ffn_hidden"], num_hidden_layers=spec["layers"],
            num_attention_heads=spec["heads"], num_key_value_heads=spec["kv_heads"],
            max_position_embeddings=sequence, tie_word_embeddings=spec["tied_embeddings"], **common)
        return transformers.LlamaForCausalLM(config)
    config = transformers.GPT2Config(
        n_embd=spec["hidden"], n_layer=spec["layers"], n_head=spec["heads"], n_inner=spec["ffn_hidden"],
        n_positions=sequence, activation_function="gelu_pytorch_tanh" if spec is GPT2_PADDED else "gelu_new", resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, **common)
    return transformers.GPT2LMHeadModel(config)


def measure(spec, sequence, micro_batch, micro_batches, checkpointing, steps, warm_up):
    torch.manual_seed(1)
    with torch.device("cuda"):
        model = make_model(spec, sequence)
    model.train()
    if checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    tokens = torch.randint(spec["vocab"], (micro_batches, micro_batch, sequence), device="cuda")

    def step():
        for rows in tokens:
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = model(input_ids=rows, labels=rows).loss / micro_batches
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    times = []
    for index in range(warm_up + steps):
        if index == warm_up:
            torch.cuda.reset_peak_memory_stats()
        torch.cuda.synchronize()
        begin = time.perf_counter()
        step()
        torch.cuda.synchronize()
        if index >= warm_up:
            times.append(time.perf_counter() - begin)
    return statistics.median(times), torch.cuda.max_memory_allocated() / 2**30


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", required=True)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--warm-up", type=int, default=3)
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("torch_training.py: PyTorch finds no GPU")
    torch.backends.cuda.matmul.allow_tf32 = False
    gpu = torch.cuda.get_device_name(0)
    versions = (f"PyTorch {torch.__version__}, Transformers {transformers.__version__}, "
                f"Python {platform.python_version()}")
    rows = []
    for spec, sequence, micro_batch, micro_batches, checkpointing in CASES:
        name = f"{spec['name']}-s{sequence}-b{micro_batch}x{micro_batches}{'-checkpointed' if checkpointing else ''}"
        try:
            seconds, gib = measure(spec, sequence, micro_batch, micro_batches, checkpointing, arguments.steps,
                                   arguments.warm_up)
        except torch.cuda.OutOfMemoryError:
            print(f"{name}: out of memory", flush=True)
            continue
        finally:
            torch.cuda.empty_cache()
        print(f"{name}: {seconds * 1e3:.1f} ms, {gib:.2f} GiB", flush=True)
        rows.append({"/id": name, **{f"/model/{key}": value for key, value in spec.items()}, "/model/seq_len": sequence,
                     "/batch/global_batch_seqs": micro_batch * micro_batches, "/batch/micro_batch_seqs": micro_batch,
                     "/recompute": "full" if checkpointing else "none",
                     "/measured/step_time_s": seconds, "/measured/peak_memory_gib": gib})
    table = {
        "schema": "orrery.published_runs/1",
        "source": {"title": f"Orrery's own: PyTorch on one {gpu}", "where": f"tests/bench/torch_training.py, {versions}"},
        "common": {
            "quality": "A", "scored": True,
            "hardware": {"gpu": gpu, "gpus_per_node": 1, "num_gpus": 1},
            "parallel": {"tp": 1, "pp": 1, "dp": 1, "data_parallel": "ddp"},
            "precision": "bf16", "flash_attention": True,
            "framework": "Hugging Face Transformers, PyTorch eager, autocast, SDPA, fused AdamW",
            "measured": {"memory_kind": "allocated"},
        },
        "columns": list(rows[0]) if rows else ["/id"],
        "rows": [list(row.values()) for row in rows],
    }
    with open(arguments.output, "w", encoding="utf-8") as out:
        json.dump(table, out, indent=1)
        out.write("\n")


if __name__ == "__main__":
    main()
