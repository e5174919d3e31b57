#!/usr/bin/env python3
"""Times on this machine's first GPU what PyTorch takes for the operators that `orrery calibrate --gpu` timed.

    orrery calibrate --gpu dgx-h100 --output gpu.cluster.json
    python3 tests/bench/torch_kernels.py gpu.cluster.json --output torch_kernels.json

Kinds, types and shapes are those of the file. It is timed as the calibration does it: the calls are queued behind long
copies, as many as it takes until the GPU finds them all waiting; events surround batches of calls; the median batch counts;
and each call has operands and results of its own as long as they fit into 8 GiB, so that none lies in a cache.

Attention runs under each backend of scaled_dot_product_attention that the build has, cuDNN's in a column of its own. With
fewer key/value heads than query heads they are repeated in the call, or, where PyTorch can, read by their group ("grouped").

Where PyTorch's counterpart does less than ours, it is timed as it is: its gradients are new tensors in the type of the
operands, where ours are added to sums in fp32; its norms and residuals leave out the residual's gradient and the biases that
ours add; and the product of bf16 logits writes bf16, where ours writes fp32. Cross-entropy takes fp32 logits in both types.
"""
import argparse
import collections
import dataclasses
import functools
import json
import statistics
import sys
import types
import warnings

BATCHES, CALLS = 5, 4  # as in exec/device/calibrate_device.cpp: batches of which the median counts, and calls of each
MOST_COPIES = 64       # ahead of a timing
MOST_POOL = 8 << 30    # bytes of operands and results

# What a sample of a kind must state, and how its shape is printed.
PRODUCT = (("m", "n", "k"), "{m} x {n} x {k}{with_bias}")
ATTENTION = (("rows", "heads", "kv_heads", "sequence", "head_dim"), "{batch} x {heads}/{kv_heads} x {sequence} x {head_dim}")
ROWS_BY_K, ROWS_BY_N = (("rows", "k"), "{rows} x {k}"), (("rows", "n"), "{rows} x {n}")
TABLE = (("rows", "n", "k"), "{rows} of {n} x {k}")
POSITIONS = (("rows", "k", "sequence"), "{batch} x {sequence} x {k}")
KINDS = {
    "linear_forward": PRODUCT, "linear_backward_input": PRODUCT, "linear_backward_weight": PRODUCT,
    "bias_backward": ROWS_BY_N,
    "attention_forward": ATTENTION, "attention_backward": ATTENTION,
    "layer_norm_forward": ROWS_BY_K, "layer_norm_backward": ROWS_BY_K,
    "rms_norm_forward": ROWS_BY_K, "rms_norm_backward": ROWS_BY_K,
    "gelu_forward": ROWS_BY_N, "gelu_backward": ROWS_BY_N,
    "swiglu_forward": ROWS_BY_N, "swiglu_backward": ROWS_BY_N,
    "residual_add": ROWS_BY_K,
    "embedding_forward": TABLE, "embedding_backward": TABLE,
    "position_forward": POSITIONS, "position_backward": POSITIONS,
    "cross_entropy_forward": ROWS_BY_N, "cross_entropy_backward": ROWS_BY_N,
    "adamw": (("elements",), "{elements}"),
}
# Three kernels of ours, one call of PyTorch's; the last has a number for each row.
CROSS_ENTROPY_PARTS = {"cross_entropy_max": ROWS_BY_N, "cross_entropy_sum": ROWS_BY_N,
                       "cross_entropy_loss": (("rows",), "{rows}")}
ATTENTION_BACKENDS = {"flash": "FLASH_ATTENTION", "cuDNN": "CUDNN_ATTENTION", "efficient": "EFFICIENT_ATTENTION"}
DTYPES = {"fp32": "float32", "bf16": "bfloat16"}
CALIBRATED = "the file that `orrery calibrate --gpu` writes"


class InputError(Exception):
    """The message names the file, the key, the value and what is allowed, on one line."""

    def __init__(self, file, key, value, allowed):
        text = json.dumps(value, ensure_ascii=False)
        text = text[1:-1] if isinstance(value, str) else text
        super().__init__(f"{file}: {key}: got {text if len(text) <= 200 else text[:200] + '…'}; allowed: {allowed}")


class Unavailable(Exception):
    """This PyTorch, or this GPU, cannot do it."""


@dataclasses.dataclass
class Case:
    op: str
    dtype: str
    shape: dict
    ours_s: float

    def text(self):
        shape = dict(self.shape)
        if "sequence" in shape:
            shape["batch"] = shape["rows"] // (shape.get("heads", 1) * shape["sequence"])
        return KINDS[self.op][1].format(**shape, with_bias=" + bias" if shape.get("bias") else "")


@dataclasses.dataclass
class Calibrated:
    """What the calibration timed."""
    gpu: str
    cases: list
    unmatched: list    # kinds without a counterpart in PyTorch
    without_shape: list  # kinds whose samples lack the shape: from before it was kept


def read(file):
    try:
        with open(file, encoding="utf-8") as source:
            document = json.load(source)
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise InputError(file, "the file", f"'{error}'", CALIBRATED) from error
    if not isinstance(document, dict) or document.get("schema") != "orrery.cluster/1":
        raise InputError(file, "/schema", document.get("schema") if isinstance(document, dict) else "no object",
                         f'"orrery.cluster/1": {CALIBRATED}')
    device = document.get("device")
    if not isinstance(device, dict) or not isinstance(device.get("name"), str):
        raise InputError(file, "/device/name", device.get("name") if isinstance(device, dict) else device, CALIBRATED)
    if device.get("host_runs_compute") is not False:
        raise InputError(file, "/device/host_runs_compute", device.get("host_runs_compute"), "false, a cluster of GPUs")

    seconds, unmatched, without_shape = collections.defaultdict(list), set(), set()
    for samples in ("matmul_samples", "operator_samples"):
        listed = device.get(samples, [])
        if not isinstance(listed, list):
            raise InputError(file, f"/device/{samples}", listed, CALIBRATED)
        for index, sample in enumerate(listed):
            key = f"/device/{samples}/{index}"
            op, dtype, shape, time = read_sample(file, key, sample)
            if shape is None:
                unmatched.add(op)
            elif not shape:
                without_shape.add(op)
            else:
                seconds[op, dtype, tuple(shape.items())].append(time)
    if not seconds and not unmatched and not without_shape:
        raise InputError(file, "/device/operator_samples", "no timings", CALIBRATED)
    # Samples of one shape differ in what PyTorch's counterpart does not know, such as the length of sequences.
    cases = [Case(op, dtype, dict(shape), statistics.median(times)) for (op, dtype, shape), times in seconds.items()]
    cases, incomplete = join_cross_entropy(cases)
    order = list(KINDS)
    cases.sort(key=lambda case: (order.index(case.op), case.dtype, list(case.shape.values())))
    return Calibrated(device["name"], cases, sorted(unmatched), sorted(without_shape | incomplete))


def read_sample(file, key, sample):
    """The operator, type, shape and seconds. The shape is None for a kind without a counterpart, and empty if it lacks a size."""
    if not isinstance(sample, dict) or not isinstance(sample.get("op"), str):
        raise InputError(file, f"{key}/op", sample.get("op") if isinstance(sample, dict) else sample, "the name of an operator")
    op = sample["op"]
    dtype = sample.get("dtype", "fp32")
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise InputError(file, f"{key}/dtype", dtype, ", ".join(DTYPES))
    time = sample.get("seconds")
    if isinstance(time, bool) or not isinstance(time, (int, float)) or not 0 < time < float("inf"):
        raise InputError(file, f"{key}/seconds", time, "a number above 0")
    kind = KINDS.get(op) or CROSS_ENTROPY_PARTS.get(op)
    if kind is None:
        return op, dtype, None, time
    shape = {name: sample.get(name, 0) for name in kind[0]}
    for name, size in shape.items():
        if isinstance(size, bool) or not isinstance(size, int) or size < 0:
            raise InputError(file, f"{key}/{name}", size, "a whole number, 0 or above")
    if 0 in shape.values():
        return op, dtype, {}, time
    if kind is ATTENTION and shape["heads"] % shape["kv_heads"] != 0:
        raise InputError(file, f"{key}/kv_heads", shape["kv_heads"], f"a divisor of heads, {shape['heads']}")
    whole = shape.get("heads", 1) * shape.get("sequence", 1)
    if shape.get("rows", 0) % whole != 0:
        raise InputError(file, f"{key}/rows", shape["rows"], f"a multiple of {whole}")
    if kind is PRODUCT:
        shape["bias"] = sample.get("bias", False)
        if not isinstance(shape["bias"], bool):
            raise InputError(file, f"{key}/bias", shape["bias"], "true, false")
    return op, dtype, shape, time


def join_cross_entropy(cases):
    """One case for the three kernels of the forward pass, and the kinds that lack another of them."""
    parts = {(case.op, case.dtype, *case.shape.values()): case for case in cases if case.op in CROSS_ENTROPY_PARTS}
    others = [case for case in cases if case.op not in CROSS_ENTROPY_PARTS]
    used = set()
    for (op, dtype, rows, *n), case in parts.items():
        keys = [("cross_entropy_max", dtype, rows, *n), ("cross_entropy_sum", dtype, rows, *n),
                ("cross_entropy_loss", dtype, rows)]
        if op == "cross_entropy_max" and all(key in parts for key in keys):
            others.append(Case("cross_entropy_forward", dtype, case.shape, sum(parts[key].ours_s for key in keys)))
            used.update(keys)
    return others, {case.op for key, case in parts.items() if key not in used}


class Peers:
    """PyTorch's counterparts. Each makes operands of the type, and returns the call that is timed."""

    def __init__(self, torch):
        self.torch = torch
        self.functional = torch.nn.functional

    def ways(self, case):
        """By name: functions that make operands and return a call."""
        shape = types.SimpleNamespace(**case.shape)
        dtype = "fp32" if case.op.startswith("cross_entropy") else case.dtype
        values = functools.partial(self.values, getattr(self.torch, DTYPES[dtype]))
        if not case.op.startswith("attention"):
            named = {"PyTorch": getattr(self, case.op)}
            if case.op == "embedding_backward":
                named = {"autograd": self.embedding_backward, "index_add_": self.embedding_rows_backward}
        else:
            named = {}
            for name, backend in ATTENTION_BACKENDS.items():
                one = functools.partial(self.attention, backend, case.op == "attention_backward")
                named[name] = functools.partial(one, False)
                if shape.heads != shape.kv_heads:
                    named[f"{name} grouped"] = functools.partial(one, True)
        return {name: functools.partial(way, shape, values) for name, way in named.items()}

    def values(self, dtype, *shape):
        """Around 1, because GPUs run faster on zeros than on the values of a training."""
        return self.torch.empty(shape, dtype=dtype, device="cuda").uniform_(0.5, 1.5)

    def indices(self, rows, below):
        return self.torch.arange(rows, device="cuda") * 7919 % below

    def part(self, module, name):
        if not hasattr(module, name):
            raise Unavailable(f"PyTorch {self.torch.__version__} lacks {name}")
        return getattr(module, name)

    def gradients(self, forward, *inputs):
        for one in inputs:
            one.requires_grad_()
        y = forward(*inputs)
        dy = self.values(y.dtype, *y.shape)
        return lambda: self.torch.autograd.grad(y, inputs, dy, retain_graph=True)

    def linear_forward(self, s, values):
        x, weight, bias = values(s.m, s.k), values(s.n, s.k), values(s.n) if s.bias else None
        return lambda: self.functional.linear(x, weight, bias)

    def linear_backward_input(self, s, values):
        dy, weight = values(s.m, s.n), values(s.n, s.k)
        return lambda: self.torch.mm(dy, weight)

    def linear_backward_weight(self, s, values):
        dy, x = values(s.m, s.n), values(s.m, s.k)
        if s.bias:
            return lambda: (self.torch.mm(dy.t(), x), dy.sum(0))
        return lambda: self.torch.mm(dy.t(), x)

    def bias_backward(self, s, values):
        dy = values(s.rows, s.n)
        return lambda: dy.sum(0)

    def attention(self, name, backward, grouped, s, values):
        try:
            import torch.nn.attention as attention
        except ImportError as error:
            raise Unavailable(f"PyTorch {self.torch.__version__} lacks torch.nn.attention") from error
        backend = self.part(self.part(attention, "SDPBackend"), name)
        one_backend = self.part(attention, "sdpa_kernel")
        # Views of a row of all heads, as a merged projection leaves it.
        batch, group = s.rows // (s.heads * s.sequence), s.heads // s.kv_heads
        qkv = values(batch, s.sequence, s.heads + 2 * s.kv_heads, s.head_dim)
        q, k, v = (part.transpose(1, 2).detach() for part in qkv.split([s.heads, s.kv_heads, s.kv_heads], 2))

        def forward(q, k, v):
            if group > 1 and not grouped:
                k, v = (part.repeat_interleave(group, dim=1) for part in (k, v))
            try:
                with one_backend(backend):
                    return self.functional.scaled_dot_product_attention(
                        q, k, v, is_causal=True, **({"enable_gqa": True} if grouped else {}))
            except TypeError as error:
                if not grouped:
                    raise
                raise Unavailable(f"PyTorch {self.torch.__version__} lacks enable_gqa") from error

        return self.gradients(forward, q, k, v) if backward else lambda: forward(q, k, v)

    def layer_norm_forward(self, s, values):
        x, weight, bias = values(s.rows, s.k), values(s.k), values(s.k)
        return lambda: self.functional.layer_norm(x, (s.k,), weight, bias)

    def layer_norm_backward(self, s, values):
        return self.gradients(lambda x, weight, bias: self.functional.layer_norm(x, (s.k,), weight, bias),
                              values(s.rows, s.k), values(s.k), values(s.k))

    def rms_norm_forward(self, s, values):
        norm, x, weight = self.part(self.functional, "rms_norm"), values(s.rows, s.k), values(s.k)
        return lambda: norm(x, (s.k,), weight, 1e-5)

    def rms_norm_backward(self, s, values):
        norm = self.part(self.functional, "rms_norm")
        return self.gradients(lambda x, weight: norm(x, (s.k,), weight, 1e-5), values(s.rows, s.k), values(s.k))

    def gelu_forward(self, s, values):
        x = values(s.rows, s.n)
        return lambda: self.functional.gelu(x, approximate="tanh")

    def gelu_backward(self, s, values):
        return self.gradients(lambda x: self.functional.gelu(x, approximate="tanh"), values(s.rows, s.n))

    def swiglu_forward(self, s, values):
        gate, up = values(s.rows, s.n), values(s.rows, s.n)
        return lambda: self.functional.silu(gate) * up

    def swiglu_backward(self, s, values):
        return self.gradients(lambda gate, up: self.functional.silu(gate) * up, values(s.rows, s.n), values(s.rows, s.n))

    def residual_add(self, s, values):
        a, b = values(s.rows, s.k), values(s.rows, s.k)
        return lambda: a + b

    def embedding_forward(self, s, values):
        tokens, weight = self.indices(s.rows, s.n), values(s.n, s.k)
        return lambda: self.functional.embedding(tokens, weight)

    def embedding_backward(self, s, values):
        """Writes the gradient of the whole table."""
        tokens = self.indices(s.rows, s.n)
        return self.gradients(lambda weight: self.functional.embedding(tokens, weight), values(s.n, s.k))

    def embedding_rows_backward(self, s, values):
        """Adds to the rows that were looked up, as ours does."""
        tokens, dy, gradient = self.indices(s.rows, s.n), values(s.rows, s.k), values(s.n, s.k)
        return lambda: gradient.index_add_(0, tokens, dy)

    def position_forward(self, s, values):
        x, weight = values(s.sequence, s.rows // s.sequence, s.k), values(s.sequence, 1, s.k)
        return lambda: x + weight

    def position_backward(self, s, values):
        dy = values(s.sequence, s.rows // s.sequence, s.k)
        return lambda: dy.sum(1)

    def cross_entropy_forward(self, s, values):
        logits, targets = values(s.rows, s.n), self.indices(s.rows, s.n)
        return lambda: self.functional.cross_entropy(logits, targets, reduction="sum")

    def cross_entropy_backward(self, s, values):
        targets = self.indices(s.rows, s.n)
        return self.gradients(lambda logits: self.functional.cross_entropy(logits, targets, reduction="sum"),
                              values(s.rows, s.n))

    def adamw(self, s, values):
        parameters = values(s.elements).requires_grad_()
        parameters.grad = values(s.elements)
        optimizer = self.torch.optim.AdamW([parameters], lr=1e-4, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1, fused=True)
        return optimizer.step


class Stopwatch:
    def __init__(self, torch):
        self.cuda = torch.cuda
        free, _ = torch.cuda.mem_get_info()
        self.pool = min(MOST_POOL, free // 2)
        half = self.pool // 8
        self.copied = torch.ones(half, dtype=torch.uint8, device="cuda")
        self.copy = torch.empty(half, dtype=torch.uint8, device="cuda")

    def seconds(self, prepare):
        """The GPU's time for one call."""
        before = self.cuda.memory_allocated()
        calls = [prepare()]
        results = [calls[0]()]
        each = self.cuda.memory_allocated() - before
        while len(calls) < BATCHES * CALLS and (len(calls) + 1) * each <= self.pool:
            calls.append(prepare())
            results.append(None)
        # A result is freed when the next of the same call exists, so that results differ in place, too. Two rounds, after
        # which no call allocates device memory.
        for _ in range(2):
            for index, call in enumerate(calls):
                results[index] = call()
        copies = 1
        while True:
            seconds, waited = self.seconds_behind(copies, calls, results)
            if waited or copies >= MOST_COPIES:
                return seconds
            copies *= 2

    def seconds_behind(self, copies, calls, results):
        """The time, and whether the host had queued all calls before the GPU began the first."""
        for _ in range(copies):
            self.copy.copy_(self.copied)
        batches, at = [], 0
        for _ in range(BATCHES):
            begin, end = self.cuda.Event(enable_timing=True), self.cuda.Event(enable_timing=True)
            begin.record()
            for _ in range(CALLS):
                results[at] = calls[at]()
                at = (at + 1) % len(calls)
            end.record()
            batches.append((begin, end))
        waited = not batches[0][0].query()
        batches[-1][1].synchronize()
        return statistics.median(begin.elapsed_time(end) for begin, end in batches) * 1e-3 / CALLS, waited


def first_line(error):
    return (str(error).splitlines() or [type(error).__name__])[0]


def measure(case, torch, peers, stopwatch):
    """A row of the output: the times of PyTorch by name, and why a way has none."""
    row = {"op": case.op, "dtype": case.dtype, "shape": case.text(), "ours_s": case.ours_s, "peers_s": {}, "unavailable": {},
           "failed": {}}
    for name, prepare in peers.ways(case).items():
        try:
            row["peers_s"][name] = stopwatch.seconds(prepare)
        except Unavailable as error:
            row["unavailable"][name] = str(error)
        except torch.cuda.OutOfMemoryError:
            row["unavailable"][name] = "out of memory"
        except RuntimeError as error:  # a backend of attention refuses a type or shape with this
            row["unavailable" if case.op.startswith("attention") else "failed"][name] = first_line(error)
        torch.cuda.empty_cache()
    return row


def is_cudnn(name):
    return name.startswith("cuDNN")


def best(row, wanted):
    """The fastest way and its time."""
    return min(((time, name) for name, time in row["peers_s"].items() if wanted(name)), default=(None, "-"))


def ratio(row):
    time, _ = best(row, lambda name: True)
    return None if time is None else row["ours_s"] / time


def time_text(seconds):
    if seconds is None:
        return "-"
    for unit, scale in (("s", 1), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= 0.9995 * scale:
            break
    value = seconds / scale
    return f"{value:.{2 if value < 9.995 else 1 if value < 99.95 else 0}f} {unit}"


def ratio_text(value):
    return "-" if value is None else f"{value:.2f}"


def table(headers, rows, left):
    """Columns as in Orrery's tables; the first `left` are flush left."""
    widths = [max(map(len, column)) for column in zip(headers, *rows)]
    lines = [headers, ["-" * width for width in widths], *rows]
    return "".join("  ".join(cell.ljust(width) if index < left else cell.rjust(width)
                             for index, (cell, width) in enumerate(zip(line, widths))).rstrip() + "\n" for line in lines)


def report(calibrated, rows):
    lines = []
    by_kind = collections.defaultdict(list)
    for row in rows:
        time, name = best(row, lambda one: not is_cudnn(one))
        cudnn, _ = best(row, is_cudnn)
        lines.append([row["op"], row["dtype"], row["shape"], name, time_text(row["ours_s"]), time_text(time), time_text(cudnn),
                      ratio_text(ratio(row))])
        by_kind[row["op"], row["dtype"]].append(ratio(row))
    text = table(["operator", "type", "shape", "fastest of PyTorch", "ours", "PyTorch", "cuDNN", "ratio"], lines, 4)
    text += ("shape: products m x n x k, attention batch x heads/key-value heads x sequence x head; ratio: ours to the faster of "
             "PyTorch and cuDNN;\n-: not available\n\n")
    lines = []
    for (op, dtype), ratios in by_kind.items():
        known = [one for one in ratios if one is not None]
        lines.append([op, dtype, f"{len(known)} of {len(ratios)}", ratio_text(statistics.median(known) if known else None),
                      ratio_text(max(known, default=None))])
    text += table(["operator", "type", "compared", "median ratio", "largest"], lines, 2)
    reasons = {}
    for row in rows:
        for what in ("unavailable", "failed"):
            for name, reason in row[what].items():
                reasons.setdefault(f"{what}: {name}: {row['op']}, {row['dtype']}: {reason}")
    text += "".join(f"{line}\n" for line in reasons)
    if calibrated.unmatched:
        text += f"without a counterpart in PyTorch: {', '.join(calibrated.unmatched)}\n"
    if calibrated.without_shape:
        text += f"without a shape in the file, calibrate again: {', '.join(calibrated.without_shape)}\n"
    return text


def run(arguments):
    calibrated = read(arguments.cluster)
    try:
        import torch
    except ImportError as error:
        raise InputError("torch_kernels.py", "PyTorch", f"'{error}'", "a Python that can import torch") from error
    if not torch.cuda.is_available():
        raise InputError("torch_kernels.py", "PyTorch", "no GPU", "a PyTorch with CUDA, and a GPU")
    gpu = torch.cuda.get_device_name(0)
    if gpu != calibrated.gpu:
        raise InputError(arguments.cluster, "/device/name", calibrated.gpu, f"the GPU of this machine, {gpu}")
    warnings.simplefilter("ignore", UserWarning)  # why a backend of attention does not fit; its error is reported
    # Products in full fp32, and in bf16 with sums in fp32.
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    peers, stopwatch = Peers(torch), Stopwatch(torch)
    versions = {"torch": torch.__version__, "cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version()}
    try:
        out = open(arguments.output, "w", encoding="utf-8")
    except OSError as error:
        raise InputError("command line", "--output", f"'{error}'", "a file that can be written") from error
    with out:
        rows = [measure(case, torch, peers, stopwatch) for case in calibrated.cases]
        json.dump({"gpu": gpu, "versions": versions, "rows": rows, "without_counterpart": calibrated.unmatched,
                   "without_shape": calibrated.without_shape}, out, indent=1)
        out.write("\n")
    print(f"{gpu}, PyTorch {versions['torch']}, CUDA {versions['cuda']}, cuDNN {versions['cudnn']}")
    print(report(calibrated, rows), end="")
    failed = sum(len(row["failed"]) for row in rows)
    if failed:
        print(f"torch_kernels.py: {failed} timings failed; the table names them", file=sys.stderr)
    return 1 if failed else 0


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cluster", help=CALIBRATED)
    parser.add_argument("--output", required=True, help="file for the times, JSON")
    try:
        return run(parser.parse_args(arguments))
    except InputError as error:
        print(f"torch_kernels.py: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
