#!/usr/bin/python3
"""Trains the zoo's tiny-gpt and tiny-llama, and the latter with multi-head latent attention (tiny-latent), in PyTorch
(CPU, fp32) and writes their losses and first gradients.

The weights and the data are those of Orrery, made anew here from core/random.h's counter generator, so that the files
written hold what an independent implementation computes. Debian 12: apt-get install python3-torch python3-numpy.

    /usr/bin/python3 tests/golden/torch_reference.py [FOLDER]     (default: this script's folder)

Rules shared with Orrery: uniform initial weights with standard deviation 0.02 (layer-norm models: residual projections
0.02 / sqrt(2 layers)), zero biases, unit norms; the mean loss over all tokens of a global batch; AdamW with decay on
matrices and embeddings only.
"""
import json
import math
import pathlib
import sys

import numpy as np
import torch
import torch.nn.functional as functional

ROOT = pathlib.Path(__file__).resolve().parents[2]
SETTINGS = {
    "seed": 1234,
    "steps": 10,
    "global_batch_size": 8,
    "sequence_length": 32,
    "learning_rate": 3e-4,
    "beta1": 0.9,
    "beta2": 0.95,
    "epsilon": 1e-8,
    "weight_decay": 0.1,
}
INIT_STD = 0.02
LATENT = {"q_lora_rank": 24, "kv_lora_rank": 16, "nope_head_dim": 8, "rope_head_dim": 4, "v_head_dim": 6}


def mix64(x):
    x = np.asarray(x, dtype=np.uint64)
    with np.errstate(over="ignore"):
        x = x + np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def hash_name(name):
    value = 0xCBF29CE484222325
    for byte in name.encode():
        value = ((value ^ byte) * 0x100000001B3) % 2**64
    return np.uint64(value)


class Stream:
    def __init__(self, seed, name):
        self.key = mix64(mix64(seed) ^ hash_name(name))

    def bits(self, index):
        return mix64(self.key ^ mix64(index))

    def uniform(self, index):
        return (self.bits(index) >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def below(self, index, bound):
        return (int(self.bits(index)) * bound) >> 64


def initial(seed, name, shape, std):
    index = np.arange(math.prod(shape), dtype=np.uint64)
    values = (2.0 * Stream(seed, name).uniform(index) - 1.0) * math.sqrt(3.0) * std
    return torch.from_numpy(values.astype(np.float32).reshape(shape))


def sample_tokens(seed, vocab, sample, length):
    """Affine steps with uniform noise where the three low bits are zero."""
    stream = Stream(seed, "data")
    tokens = []
    for position in range(length):
        counter = (sample << 32) + position
        noise = position == 0 or int(stream.bits(counter)) & 7 == 0
        tokens.append(stream.below(counter, vocab) if noise else (5 * tokens[-1] + 7) % vocab)
    return tokens


def make_parameters(model, seed):
    """Global tensors by name, and the names that are decayed."""
    hidden, ffn = model["hidden"], model["ffn_hidden"]
    q_width = model["heads"] * model["head_dim"]
    kv_width = model["kv_heads"] * model["head_dim"]
    layer_norm = model["norm"] == "layer_norm"
    residual_std = INIT_STD / math.sqrt(2.0 * model["layers"]) if layer_norm else INIT_STD
    parameters, decayed = {}, set()

    def matrix(name, rows, cols, std=INIT_STD):
        parameters[name] = initial(seed, name, (rows, cols), std)
        decayed.add(name)

    def linear(name, rows, cols, bias, std=INIT_STD):
        matrix(name + ".weight", rows, cols, std)
        if bias:
            parameters[name + ".bias"] = torch.zeros(rows)

    def norm(name, width=hidden):
        parameters[name + ".weight"] = torch.ones(width)
        if layer_norm:
            parameters[name + ".bias"] = torch.zeros(width)

    def latent_projections(prefix, latent):
        heads, q_rank, kv_rank = model["heads"], latent["q_lora_rank"], latent["kv_lora_rank"]
        nope, rope, value = latent["nope_head_dim"], latent["rope_head_dim"], latent["v_head_dim"]
        linear(prefix + "q_down", q_rank, hidden, False)
        norm(prefix + "q_latent_norm", q_rank)
        linear(prefix + "q_up", heads * (nope + rope), q_rank, False)
        linear(prefix + "kv_down", kv_rank + rope, hidden, False)
        norm(prefix + "kv_latent_norm", kv_rank)
        linear(prefix + "kv_up", heads * (nope + value), kv_rank, False)
        linear(prefix + "o", hidden, heads * value, False)

    matrix("embedding.weight", model["vocab"], hidden)
    if model["position"] == "learned":
        matrix("position.weight", model["max_positions"], hidden)
    for layer in range(model["layers"]):
        prefix = f"layers.{layer}."
        norm(prefix + "norm1")
        if "latent" in model:
            latent_projections(prefix + "attention.", model["latent"])
        else:
            linear(prefix + "attention.q", q_width, hidden, model["qkv_bias"])
            linear(prefix + "attention.k", kv_width, hidden, model["qkv_bias"])
            linear(prefix + "attention.v", kv_width, hidden, model["qkv_bias"])
            linear(prefix + "attention.o", hidden, q_width, model["attention_output_bias"], residual_std)
        norm(prefix + "norm2")
        if model["mlp"] == "swiglu":
            linear(prefix + "mlp.gate", ffn, hidden, model["mlp_bias"])
            linear(prefix + "mlp.up", ffn, hidden, model["mlp_bias"])
            linear(prefix + "mlp.down", hidden, ffn, model["mlp_bias"], residual_std)
        else:
            linear(prefix + "mlp.fc1", ffn, hidden, model["mlp_bias"])
            linear(prefix + "mlp.fc2", hidden, ffn, model["mlp_bias"], residual_std)
    norm("head.norm")
    if not model["tied_embeddings"]:
        matrix("head.weight", model["vocab"], hidden)
    for tensor in parameters.values():
        tensor.requires_grad_(True)
    return parameters, decayed


def logits_of(model, p, tokens):
    """tokens [batch, sequence] -> logits [batch, sequence, vocab]."""
    batch, length = tokens.shape
    dim = model["latent"]["rope_head_dim"] if "latent" in model else model["head_dim"]  # what is rotated

    def norm(name, x):
        if model["norm"] == "layer_norm":
            return functional.layer_norm(x, x.shape[-1:], p[name + ".weight"], p[name + ".bias"],
                                         model["norm_epsilon"])
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + model["norm_epsilon"]) * p[name + ".weight"]

    def linear(name, x):
        return functional.linear(x, p[name + ".weight"], p.get(name + ".bias"))

    def heads(x, count):
        return x.view(batch, length, count, -1).transpose(1, 2)

    if model["position"] == "rotary":
        exponents = torch.arange(0, dim, 2, dtype=torch.float64) / dim
        angles = torch.outer(torch.arange(length, dtype=torch.float64), model["rope_theta"]**-exponents)
        cosines, sines = angles.cos().float(), angles.sin().float()

    def rotated(x):
        if model["position"] != "rotary":
            return x
        first, second = x[..., :dim // 2], x[..., dim // 2:]
        return torch.cat([first * cosines - second * sines, second * cosines + first * sines], dim=-1)

    def grouped(prefix, normed):
        q = rotated(heads(linear(prefix + "q", normed), model["heads"]))
        k = rotated(heads(linear(prefix + "k", normed), model["kv_heads"]))
        v = heads(linear(prefix + "v", normed), model["kv_heads"])
        group = model["heads"] // model["kv_heads"]
        return q, k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)

    def latent(prefix, normed):
        """arXiv 2405.04434, section 2.1: heads from low-rank latents, and one rotated key for all of them."""
        sizes = model["latent"]
        nope, rope, value = sizes["nope_head_dim"], sizes["rope_head_dim"], sizes["v_head_dim"]
        q = heads(linear(prefix + "q_up", norm(prefix + "q_latent_norm", linear(prefix + "q_down", normed))),
                  model["heads"])
        kv, shared = linear(prefix + "kv_down", normed).split([sizes["kv_lora_rank"], rope], dim=-1)
        k, v = heads(linear(prefix + "kv_up", norm(prefix + "kv_latent_norm", kv)),
                     model["heads"]).split([nope, value], dim=-1)
        turned = rotated(shared.unsqueeze(1)).expand(-1, model["heads"], -1, -1)
        return torch.cat([q[..., :nope], rotated(q[..., nope:])], dim=-1), torch.cat([k, turned], dim=-1), v

    mask = torch.full((length, length), -math.inf).triu(1)
    x = functional.embedding(tokens, p["embedding.weight"])
    if model["position"] == "learned":
        x = x + p["position.weight"][:length]
    for layer in range(model["layers"]):
        prefix = f"layers.{layer}."
        normed = norm(prefix + "norm1", x)
        q, k, v = (latent if "latent" in model else grouped)(prefix + "attention.", normed)
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1]) + mask
        mixed = (scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, length, -1)
        x = x + linear(prefix + "attention.o", mixed)
        normed = norm(prefix + "norm2", x)
        if model["mlp"] == "swiglu":
            inner = functional.silu(linear(prefix + "mlp.gate", normed)) * linear(prefix + "mlp.up", normed)
            x = x + linear(prefix + "mlp.down", inner)
        else:
            x = x + linear(prefix + "mlp.fc2", functional.gelu(linear(prefix + "mlp.fc1", normed), approximate="tanh"))
    head = p["embedding.weight"] if model["tied_embeddings"] else p["head.weight"]
    return functional.linear(norm("head.norm", x), head)


def train(model):
    s = SETTINGS
    parameters, decayed = make_parameters(model, s["seed"])
    optimizer = torch.optim.AdamW(
        [{"params": [t for n, t in parameters.items() if n in decayed], "weight_decay": s["weight_decay"]},
         {"params": [t for n, t in parameters.items() if n not in decayed], "weight_decay": 0.0}],
        lr=s["learning_rate"], betas=(s["beta1"], s["beta2"]), eps=s["epsilon"])
    losses, norms = [], {}
    for step in range(s["steps"]):
        first = step * s["global_batch_size"]
        rows = [sample_tokens(s["seed"], model["vocab"], first + j, s["sequence_length"] + 1)
                for j in range(s["global_batch_size"])]
        batch = torch.tensor(rows)
        logits = logits_of(model, parameters, batch[:, :-1]).flatten(0, 1)
        targets = batch[:, 1:].flatten()
        optimizer.zero_grad()
        functional.cross_entropy(logits, targets).backward()
        losses.append(functional.cross_entropy(logits.detach().double(), targets).item())
        if step == 0:
            norms = {name: tensor.grad.double().norm().item() for name, tensor in parameters.items()}
        optimizer.step()
    return losses, norms


def main():
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent
    torch.set_num_threads(1)
    for name in ("tiny-gpt", "tiny-llama", "tiny-latent"):
        base = "tiny-llama" if name == "tiny-latent" else name
        model = json.loads((ROOT / "models" / "zoo" / f"{base}.json").read_text())
        if name == "tiny-latent":
            model["latent"] = LATENT
        losses, norms = train(model)
        result = {
            "schema": "orrery.golden/1",
            "made_by": f"tests/golden/torch_reference.py with PyTorch {torch.__version__}",
            "model": name,
            "settings": SETTINGS,
            **({"latent": model["latent"]} if "latent" in model else {}),
            "losses": losses,
            "gradient_norms": norms,
        }
        path = folder / f"torch_{name.replace('-', '_')}.json"
        path.write_text(json.dumps(result, indent=2) + "\n")
        print(path, losses[0], losses[-1])


if __name__ == "__main__":
    main()
