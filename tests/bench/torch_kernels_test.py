#!/usr/bin/env python3
"""torch_kernels.py with a stand-in for PyTorch, whose tensors are shapes and whose operators take fixed times."""
import contextlib
import io
import json
import math
import pathlib
import sys
import tempfile
import types
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import torch_kernels  # noqa: E402

GPU = "NVIDIA stand-in"
SIZES = {"float32": 4, "bfloat16": 2, "uint8": 1, "int64": 8}
# Milliseconds of a call.
MS = {"linear": 2, "mm": 3, "sum": 0.5, "add": 0.25, "mul": 0.25, "silu": 0.5, "copy_": 10, "index_add_": 0.125,
      "FLASH_ATTENTION": 4, "CUDNN_ATTENTION": 1, "EFFICIENT_ATTENTION": 8, "repeat_interleave": 1, "grad": 5, "adamw": 6}


class OutOfMemoryError(RuntimeError):
    pass


class Machine:
    """The clock and the memory of the GPU, and what was called on which operands."""

    def __init__(self, free=1 << 40, copies_needed=1, failing=(), lacking=()):
        self.free, self.copies_needed, self.failing, self.lacking = free, copies_needed, dict(failing), set(lacking)
        self.now, self.allocated, self.copies, self.most_copies, self.calls = 0.0, 0, 0, 0, []
        self.backend, self.tensors = None, 0

    def call(self, name, *operands):
        if name in self.failing:
            raise self.failing[name]
        # Not the tensors themselves, which would hold their memory.
        self.calls.append((name, [types.SimpleNamespace(shape=x.shape, dtype=x.dtype, number=x.number) for x in operands]))
        self.now += MS.get(name, 1)


class Tensor:
    def __init__(self, machine, shape, dtype, base=None):
        self.machine, self.shape, self.dtype, self.base, self.inputs = machine, tuple(shape), dtype, base, ()
        machine.tensors += 1
        self.number = machine.tensors
        self.bytes = 0 if base else math.prod(self.shape) * SIZES[dtype]
        machine.allocated += self.bytes

    def __del__(self):
        self.machine.allocated -= self.bytes

    def made(self, name, shape, *others):
        self.machine.call(name, self, *others)
        return Tensor(self.machine, shape, self.dtype)

    def view(self, shape):
        return Tensor(self.machine, shape, self.dtype, self)

    def uniform_(self, low, high):
        assert 0 < low < 1 < high
        return self

    def requires_grad_(self):
        return self

    def detach(self):
        return self

    def transpose(self, a, b):
        shape = list(self.shape)
        shape[a], shape[b] = shape[b], shape[a]
        return self.view(shape)

    def t(self):
        return self.transpose(0, 1)

    def split(self, sizes, dim):
        assert sum(sizes) == self.shape[dim]
        return [self.view((*self.shape[:dim], size, *self.shape[dim + 1:])) for size in sizes]

    def repeat_interleave(self, times, dim):
        return self.made("repeat_interleave", (*self.shape[:dim], self.shape[dim] * times, *self.shape[dim + 1:]))

    def sum(self, dim):
        return self.made("sum", (*self.shape[:dim], *self.shape[dim + 1:]))

    def together(self, name, other):
        assert self.dtype == other.dtype and len(self.shape) == len(other.shape)
        assert all(a == b or b == 1 for a, b in zip(self.shape, other.shape)), (self.shape, other.shape)
        return self.made(name, self.shape, other)

    def __add__(self, other):
        return self.together("add", other)

    def __mul__(self, other):
        return self if isinstance(other, int) else self.together("mul", other)

    def __mod__(self, below):
        return self

    def copy_(self, other):
        assert self.shape == other.shape
        self.machine.copies += 1
        self.machine.most_copies = max(self.machine.most_copies, self.machine.copies)
        self.machine.call("copy_", self, other)

    def index_add_(self, dim, index, rows):
        assert dim == 0 and index.shape == rows.shape[:1] and rows.shape[1] == self.shape[1]
        self.machine.call("index_add_", self, index, rows)
        return self


def stand_in(machine, version="2.9", available=True, gpu=GPU):
    """The modules of a PyTorch on this machine."""

    class Event:
        def __init__(self, enable_timing):
            assert enable_timing

        def record(self):
            self.at = machine.now

        def query(self):
            return machine.copies < machine.copies_needed

        def synchronize(self):
            machine.copies = 0

        def elapsed_time(self, end):
            return end.at - self.at

    def empty(shape, dtype, device):
        assert device == "cuda"
        return Tensor(machine, (shape,) if isinstance(shape, int) else shape, dtype)

    def mm(a, b):
        assert a.shape[1] == b.shape[0] and a.dtype == b.dtype
        return a.made("mm", (a.shape[0], b.shape[1]), b)

    def grad(y, inputs, dy, retain_graph):
        assert retain_graph and y.shape == dy.shape and y.dtype == dy.dtype
        machine.call("grad", y, *inputs)
        return [Tensor(machine, one.shape, one.dtype) for one in inputs]

    def linear(x, weight, bias):
        assert bias is None or bias.shape == weight.shape[:1]
        assert x.shape[1] == weight.shape[1]
        return x.made("linear", (x.shape[0], weight.shape[0]), weight, *([] if bias is None else [bias]))

    def norm(name, parameters):
        def call(x, shape, *others):
            assert shape == x.shape[1:] and all(one.shape == shape for one in others[:parameters])
            return x.made(name, x.shape, *others[:parameters])
        return call

    def embedding(tokens, weight):
        return weight.made("embedding", (*tokens.shape, weight.shape[1]), tokens)

    def cross_entropy(logits, targets, reduction):
        assert reduction == "sum" and targets.shape == logits.shape[:1]
        return logits.made("cross_entropy", (), targets)

    def gelu(x, approximate):
        assert approximate == "tanh"
        return x.made("gelu", x.shape)

    @contextlib.contextmanager
    def sdpa_kernel(backend):
        machine.backend = backend
        yield
        machine.backend = None

    def attention(q, k, v, is_causal, **options):
        if "enable_gqa" in machine.lacking and options:
            raise TypeError("an unexpected keyword argument 'enable_gqa'")
        assert is_causal and k.shape == v.shape and q.shape[0] == k.shape[0] and q.shape[2:] == k.shape[2:]
        assert q.shape[1] == k.shape[1] or options == {"enable_gqa": True}
        if q.dtype == "float32" and machine.backend != "EFFICIENT_ATTENTION":
            raise RuntimeError("No available kernel.\nAborting execution.")
        return q.made(machine.backend, q.shape, k, v)

    class AdamW:
        def __init__(self, parameters, fused, **settings):
            assert fused and parameters[0].grad.shape == parameters[0].shape and settings["weight_decay"] > 0
            self.parameters = parameters

        def step(self):
            machine.call("adamw", *self.parameters)

    backends = {name: name for name in ("FLASH_ATTENTION", "CUDNN_ATTENTION", "EFFICIENT_ATTENTION")}
    namespace = types.SimpleNamespace
    functional = namespace(linear=linear, layer_norm=norm("layer_norm", 2), rms_norm=norm("rms_norm", 1), gelu=gelu,
                           silu=lambda x: x.made("silu", x.shape), embedding=embedding, cross_entropy=cross_entropy,
                           scaled_dot_product_attention=attention)
    modern = namespace(sdpa_kernel=sdpa_kernel, SDPBackend=namespace(**backends))
    for module in (functional, modern, modern.SDPBackend):
        for name in machine.lacking & set(vars(module)):
            delattr(module, name)
    cuda = namespace(
        is_available=lambda: available, get_device_name=lambda index: gpu, Event=Event, OutOfMemoryError=OutOfMemoryError,
        mem_get_info=lambda: (machine.free, machine.free), memory_allocated=lambda: machine.allocated, empty_cache=lambda: None)
    nn = namespace(functional=functional, attention=modern)
    torch = namespace(
        __version__=version, version=namespace(cuda="13.0"), nn=nn, cuda=cuda, optim=namespace(AdamW=AdamW), mm=mm,
        autograd=namespace(grad=grad), empty=empty, ones=empty, float32="float32", bfloat16="bfloat16", uint8="uint8",
        arange=lambda rows, device: Tensor(machine, (rows,), "int64"),
        backends=namespace(cuda=namespace(matmul=namespace(allow_tf32=True)), cudnn=namespace(version=lambda: 91000)))
    has_attention = "torch.nn.attention" not in machine.lacking
    return {"torch": torch, "torch.nn": nn, "torch.nn.attention": modern if has_attention else None}


def product(op, m=8, n=16, k=32, **more):
    return {"op": op, "m": m, "n": n, "k": k, "dtype": "fp32", "seconds": 1e-3} | more


def operator(op, **more):
    return {"op": op, "bytes": 1, "flops": 1, "rows": 0, "head_dim": 0, "sequence": 0, "dtype": "fp32", "seconds": 1e-3} | more


def attention(op, **more):  # 2 sequences
    return operator(op, rows=2 * 4 * 16, heads=4, kv_heads=4, sequence=16, head_dim=8, dtype="bf16") | more


def cluster(products=(), operators=(), **device):
    return {"schema": "orrery.cluster/1", "device": {"name": GPU, "host_runs_compute": False, "matmul_samples": list(products),
                                                     "operator_samples": list(operators)} | device}


ALL = cluster(
    [product(f"linear_{part}", **more) for part in ("forward", "backward_input", "backward_weight")
     for more in ({}, {"bias": True}, {"dtype": "bf16"})],
    [attention("attention_forward"), attention("attention_backward"), attention("attention_forward", dtype="fp32"),
     *(operator(f"{op}_{part}", rows=32, n=16, k=8, sequence=16) for part in ("forward", "backward")
       for op in ("layer_norm", "rms_norm", "gelu", "swiglu", "embedding", "position", "rope")),
     operator("residual_add", rows=32, k=8), operator("bias_backward", rows=32, n=16), operator("adamw", elements=100),
     operator("cross_entropy_max", rows=32, n=50, dtype="bf16"), operator("cross_entropy_sum", rows=32, n=50, dtype="bf16"),
     operator("cross_entropy_loss", rows=32, dtype="bf16"), operator("cross_entropy_backward", rows=32, n=50)])


class Result:
    def __init__(self, code, out, err, json_text):
        self.code, self.out, self.err, self.json_text = code, out, err, json_text
        self.rows = json.loads(json_text)["rows"] if json_text else []

    def row(self, op, dtype="fp32"):
        found = [row for row in self.rows if row["op"] == op and row["dtype"] == dtype]
        assert len(found) == 1, (op, dtype, [row["op"] for row in self.rows])
        return found[0]

    def line(self, *beginning):
        """The cells of the only line of the first table that begins with these."""
        lines = [line.split() for line in self.out.split("\n\n")[0].splitlines()]
        found = [line for line in lines if tuple(line[:len(beginning)]) == beginning]
        assert len(found) == 1, self.out
        return found[0]


def run(document, machine=None, modules=None):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        path, output = folder / "gpu.cluster.json", folder / "out.json"
        path.write_text(document if isinstance(document, str) else json.dumps(document))
        out, err = io.StringIO(), io.StringIO()
        modules = stand_in(machine or Machine()) if modules is None else modules
        with mock.patch.dict(sys.modules, modules), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = torch_kernels.main([str(path), "--output", str(output)])
        return Result(code, out.getvalue(), err.getvalue().replace(str(path), "FILE"),
                      output.read_text() if output.exists() else "")


def operands_of(machine, name):
    return [operands for called, operands in machine.calls if called == name]


class Matching(unittest.TestCase):
    def test_every_kind_with_a_counterpart_is_timed(self):
        result = run(ALL)
        self.assertEqual(result.code, 0, result.err)
        self.assertEqual({row["op"] for row in result.rows}, set(torch_kernels.KINDS))
        for row in result.rows:
            self.assertTrue(row["peers_s"], row)
            self.assertFalse(row["failed"], row)
        self.assertIn("without a counterpart in PyTorch: rope_backward, rope_forward\n", result.out)
        self.assertEqual(json.loads(result.json_text)["without_counterpart"], ["rope_backward", "rope_forward"])

    def test_operands_have_the_shapes_and_types_of_the_file(self):
        machine = Machine()
        run(cluster([product("linear_forward", 8, 16, 32, bias=True, dtype="bf16")]), machine)
        x, weight, bias = operands_of(machine, "linear")[0]
        self.assertEqual((x.shape, weight.shape, bias.shape, x.dtype), ((8, 32), (16, 32), (16,), "bfloat16"))
        machine = Machine()
        run(cluster([], [attention("attention_forward", kv_heads=2)]), machine)
        q, k, v = operands_of(machine, "FLASH_ATTENTION")[0]
        self.assertEqual((q.shape, k.shape), ((2, 4, 16, 8), (2, 4, 16, 8)))
        q, k, v = operands_of(machine, "FLASH_ATTENTION")[-1]  # grouped
        self.assertEqual((q.shape, k.shape), ((2, 4, 16, 8), (2, 2, 16, 8)))
        machine = Machine()
        run(cluster([], [operator("position_forward", rows=32, n=64, k=8, sequence=16)]), machine)
        x, weight = operands_of(machine, "add")[0]
        self.assertEqual((x.shape, weight.shape), ((16, 2, 8), (16, 1, 8)))

    def test_samples_of_one_shape_are_one_case(self):
        samples = [product("linear_forward", seconds=seconds) for seconds in (1e-3, 2e-3, 9e-3)]
        result = run(cluster([*samples, product("linear_forward", bias=True), product("linear_forward", dtype="bf16")]))
        self.assertEqual([(row["dtype"], row["shape"], row["ours_s"]) for row in result.rows],
                         [("bf16", "8 x 16 x 32", 1e-3), ("fp32", "8 x 16 x 32", 2e-3), ("fp32", "8 x 16 x 32 + bias", 1e-3)])

    def test_the_forward_pass_of_cross_entropy_is_the_sum_of_its_kernels(self):
        parts = [operator("cross_entropy_max", rows=32, n=50, seconds=1e-3),
                 operator("cross_entropy_sum", rows=32, n=50, seconds=2e-3),
                 operator("cross_entropy_loss", rows=32, seconds=4e-3)]
        result = run(cluster([], parts))
        self.assertAlmostEqual(result.row("cross_entropy_forward")["ours_s"], 7e-3)
        self.assertEqual(len(result.rows), 1)
        self.assertNotIn("calibrate again", result.out)
        result = run(cluster([product("linear_forward")], parts[:2]))
        self.assertEqual([row["op"] for row in result.rows], ["linear_forward"])
        self.assertIn("calibrate again: cross_entropy_max, cross_entropy_sum\n", result.out)

    def test_logits_are_fp32_in_both_types(self):
        machine = Machine()
        run(cluster([], [operator("cross_entropy_backward", rows=32, n=50, dtype="bf16")]), machine)
        self.assertEqual(operands_of(machine, "cross_entropy")[0][0].dtype, "float32")

    def test_samples_without_a_shape_are_named(self):
        result = run(cluster([product("linear_forward")], [operator("gelu_forward"), operator("attention_forward", rows=8)]))
        self.assertEqual(result.code, 0)
        self.assertEqual([row["op"] for row in result.rows], ["linear_forward"])
        self.assertIn("without a shape in the file, calibrate again: attention_forward, gelu_forward\n", result.out)


class Tables(unittest.TestCase):
    def test_units_and_ratio(self):
        result = run(cluster([product("linear_forward", seconds=3e-3)]))
        self.assertEqual(result.line("linear_forward")[1:], "fp32 8 x 16 x 32 PyTorch 3.00 ms 2.00 ms - 1.50".split())
        self.assertIn(f"{GPU}, PyTorch 2.9, CUDA 13.0, cuDNN 91000\n", result.out)
        for seconds, text in ((2.5e-7, "0.25 us"), (12.34e-6, "12.3 us"), (9.997e-6, "10.0 us"), (9.996e-4, "1.00 ms"),
                              (0.1234, "123 ms"), (2, "2.00 s"), (None, "-")):
            self.assertEqual(torch_kernels.time_text(seconds), text)

    def test_attention_is_compared_with_the_fastest_backend(self):
        machine = Machine()
        result = run(cluster([], [attention("attention_forward", seconds=3e-3)]), machine)
        self.assertEqual(result.row("attention_forward", "bf16")["peers_s"], {"flash": 4e-3, "cuDNN": 1e-3, "efficient": 8e-3})
        self.assertEqual(result.line("attention_forward"),
                         "attention_forward bf16 2 x 4/4 x 16 x 8 flash 3.00 ms 4.00 ms 1.00 ms 3.00".split())
        grouped = run(cluster([], [attention("attention_forward", kv_heads=2, seconds=3e-3)]))
        # Repeating keys and values takes 1 ms each.
        self.assertEqual(grouped.row("attention_forward", "bf16")["peers_s"],
                         {"flash": 6e-3, "flash grouped": 4e-3, "cuDNN": 3e-3, "cuDNN grouped": 1e-3, "efficient": 10e-3,
                          "efficient grouped": 8e-3})
        self.assertIn(" flash grouped ", grouped.out)

    def test_backward_passes_are_timed_without_the_forward_pass(self):
        result = run(cluster([], [attention("attention_backward"), operator("gelu_backward", rows=4, n=4)]))
        self.assertEqual(result.row("attention_backward", "bf16")["peers_s"]["flash"], 5e-3)
        self.assertEqual(result.row("gelu_backward")["peers_s"], {"PyTorch": 5e-3})

    def test_the_gradient_of_an_embedding_is_compared_with_the_faster_way(self):
        result = run(cluster([], [operator("embedding_backward", rows=4, n=9, k=4)]))
        self.assertEqual(result.row("embedding_backward")["peers_s"], {"autograd": 5e-3, "index_add_": 0.125e-3})
        self.assertEqual(result.line("embedding_backward")[-7:], "index_add_ 1.00 ms 125 us - 8.00".split())

    def test_kinds_are_summed_up(self):
        products = [product("linear_forward", m, seconds=seconds) for m, seconds in ((1, 2e-3), (2, 4e-3), (3, 20e-3))]
        result = run(cluster(products, [attention("attention_forward", dtype="fp32")]),
                     Machine(failing={"EFFICIENT_ATTENTION": RuntimeError("no")}))
        summary = [line.split() for line in result.out.split("\n\n")[1].splitlines()]
        self.assertIn("linear_forward fp32 3 of 3 2.00 10.00".split(), summary)
        self.assertIn("attention_forward fp32 0 of 1 - -".split(), summary)


class Missing(unittest.TestCase):
    def test_backends_that_refuse_a_type_are_named(self):
        result = run(ALL)
        row = result.row("attention_forward", "fp32")
        self.assertEqual(row["peers_s"], {"efficient": 8e-3})
        self.assertEqual(row["unavailable"], {"flash": "No available kernel.", "cuDNN": "No available kernel."})
        self.assertIn("unavailable: cuDNN: attention_forward, fp32: No available kernel.\n", result.out)
        self.assertEqual(result.line("attention_forward", "fp32")[-7:], "efficient 1.00 ms 8.00 ms - 0.12".split())

    def test_what_an_older_version_lacks_is_named(self):
        result = run(ALL, modules=stand_in(Machine(lacking={"CUDNN_ATTENTION", "rms_norm", "enable_gqa"}), version="2.3"))
        self.assertEqual(result.code, 0)
        self.assertIn("unavailable: cuDNN: attention_backward, bf16: PyTorch 2.3 lacks CUDNN_ATTENTION\n", result.out)
        self.assertIn("unavailable: PyTorch: rms_norm_forward, fp32: PyTorch 2.3 lacks rms_norm\n", result.out)
        self.assertEqual(result.line("rms_norm_forward")[-6:], "- 1.00 ms - - -".split())
        grouped = run(cluster([], [attention("attention_forward", kv_heads=1)]), Machine(lacking={"enable_gqa"}))
        self.assertEqual(grouped.row("attention_forward", "bf16")["unavailable"]["flash grouped"], "PyTorch 2.9 lacks enable_gqa")
        self.assertIn("flash", grouped.row("attention_forward", "bf16")["peers_s"])
        older = run(ALL, modules=stand_in(Machine(lacking={"torch.nn.attention"}), version="2.2"))
        self.assertEqual(older.code, 0)
        self.assertIn("unavailable: flash: attention_forward, bf16: PyTorch 2.2 lacks torch.nn.attention\n", older.out)

    def test_too_little_memory_is_named(self):
        result = run(cluster([product("linear_forward"), product("linear_backward_input")]),
                     Machine(failing={"linear": OutOfMemoryError("CUDA out of memory")}))
        self.assertEqual(result.code, 0)
        self.assertEqual(result.row("linear_forward")["unavailable"], {"PyTorch": "out of memory"})
        self.assertEqual(result.row("linear_backward_input")["peers_s"], {"PyTorch": 3e-3})

    def test_a_failure_is_named_and_does_not_stop_the_others(self):
        result = run(cluster([product("linear_forward"), product("linear_backward_input")]),
                     Machine(failing={"linear": RuntimeError("CUDA error: misaligned address\nsecond line")}))
        self.assertEqual(result.code, 1)
        self.assertIn("failed: PyTorch: linear_forward, fp32: CUDA error: misaligned address\n", result.out)
        self.assertEqual(result.err, "torch_kernels.py: 1 timings failed; the table names them\n")
        self.assertEqual(result.row("linear_backward_input")["peers_s"], {"PyTorch": 3e-3})


class Timing(unittest.TestCase):
    def timed(self, free=1 << 40, copies_needed=1):
        machine = Machine(free=free, copies_needed=copies_needed)
        torch = stand_in(machine)["torch"]
        peers, stopwatch = torch_kernels.Peers(torch), torch_kernels.Stopwatch(torch)
        case = torch_kernels.Case("linear_forward", "fp32", {"m": 64, "n": 64, "k": 64, "bias": False}, 1)
        self.assertAlmostEqual(stopwatch.seconds(peers.ways(case)["PyTorch"]), 2e-3)
        return machine, [x.number for x, _ in operands_of(machine, "linear")[-torch_kernels.BATCHES * torch_kernels.CALLS:]]

    def test_each_call_has_its_own_operands(self):
        _, operands = self.timed()
        self.assertEqual(len(set(operands)), 20)

    def test_fewer_operands_are_used_in_turn_if_memory_is_small(self):
        each = 3 * 64 * 64 * 4  # two operands and a result
        _, operands = self.timed(free=2 * 5 * each)
        self.assertEqual(len(set(operands)), 5)
        self.assertEqual(operands[:5], operands[5:10])

    def test_more_copies_are_queued_until_the_gpu_finds_the_calls_waiting(self):
        machine, _ = self.timed(copies_needed=8)
        self.assertEqual(machine.most_copies, 8)
        machine, _ = self.timed(copies_needed=1 << 20)
        self.assertEqual(machine.most_copies, torch_kernels.MOST_COPIES)

    def test_results_are_released(self):
        machine = Machine()
        modules = stand_in(machine)
        run(ALL, modules=modules)
        self.assertEqual(machine.allocated, 0)

    def test_products_are_timed_in_full_precision(self):
        modules = stand_in(Machine())
        run(ALL, modules=modules)
        matmul = modules["torch"].backends.cuda.matmul
        self.assertIs(matmul.allow_tf32, False)
        self.assertIs(matmul.allow_bf16_reduced_precision_reduction, False)


class WrongInput(unittest.TestCase):
    def refused(self, document, message, **more):
        result = run(document, **more)
        self.assertEqual((result.code, result.out, result.json_text), (2, "", ""))
        self.assertEqual(result.err.count("\n"), 1, result.err)
        self.assertTrue(result.err.startswith("torch_kernels.py: "), result.err)
        self.assertIn(message, result.err)

    def test_names_file_key_value_and_what_is_allowed(self):
        at = "FILE: /device/operator_samples/0"
        calibrated = "the file that `orrery calibrate --gpu` writes"
        for document, message in (
                ("{", "FILE: the file: got 'Expecting"),
                ([], "FILE: /schema: got no object; allowed: \"orrery.cluster/1\""),
                ({"schema": "orrery.plan/1"}, "FILE: /schema: got orrery.plan/1; allowed: \"orrery.cluster/1\""),
                ({"schema": "orrery.cluster/1"}, f"FILE: /device/name: got null; allowed: {calibrated}"),
                (cluster(host_runs_compute=True), "FILE: /device/host_runs_compute: got true; allowed: false"),
                (cluster(), f"FILE: /device/operator_samples: got no timings; allowed: {calibrated}"),
                (cluster(matmul_samples=3), "FILE: /device/matmul_samples: got 3; allowed: "),
                (cluster([], [7]), f"{at}/op: got 7; allowed: the name of an operator"),
                (cluster([], [operator("gelu_forward", dtype="fp8")]), f"{at}/dtype: got fp8; allowed: fp32, bf16"),
                (cluster([], [operator("gelu_forward", dtype="a\nb")]), f"{at}/dtype: got a\\nb; allowed: fp32, bf16"),
                (cluster([], [operator("gelu_forward", dtype=[1] * 999)]), "…; allowed: fp32, bf16"),
                (cluster([], [operator("gelu_forward", seconds=0)]), f"{at}/seconds: got 0; allowed: a number above 0"),
                (cluster([], [operator("gelu_forward", seconds=True)]), f"{at}/seconds: got true; allowed: a number above 0"),
                (cluster([], [operator("gelu_forward", rows=-1)]), f"{at}/rows: got -1; allowed: a whole number"),
                (cluster([], [operator("gelu_forward", n=1.5)]), f"{at}/n: got 1.5; allowed: a whole number"),
                (cluster([], [attention("attention_forward", rows=100)]), f"{at}/rows: got 100; allowed: a multiple of 64"),
                (cluster([], [attention("attention_forward", kv_heads=3)]), f"{at}/kv_heads: got 3; allowed: a divisor of heads"),
                (cluster([product("linear_forward", bias=1)]), "matmul_samples/0/bias: got 1; allowed: true, false")):
            with self.subTest(message):
                self.refused(document, message)

    def test_another_gpu_than_the_calibrated_one(self):
        self.refused(ALL, f"FILE: /device/name: got {GPU}; allowed: the GPU of this machine, another",
                     modules=stand_in(Machine(), gpu="another"))

    def test_no_pytorch_or_no_gpu(self):
        self.refused(ALL, "PyTorch: got 'import of torch halted; None in sys.modules'; allowed: a Python that can import torch",
                     modules={"torch": None})
        self.refused(ALL, "PyTorch: got no GPU; allowed: ", modules=stand_in(Machine(), available=False))

    def test_a_file_that_is_not_there_or_cannot_be_written(self):
        err = io.StringIO()
        with contextlib.redirect_stderr(err):
            self.assertEqual(torch_kernels.main(["/nowhere/gpu.cluster.json", "--output", "out.json"]), 2)
        self.assertIn("/nowhere/gpu.cluster.json: the file: got '", err.getvalue())
        with tempfile.TemporaryDirectory() as name, mock.patch.dict(sys.modules, stand_in(Machine())):
            path = pathlib.Path(name, "gpu.cluster.json")
            path.write_text(json.dumps(ALL))
            with contextlib.redirect_stderr(err):
                self.assertEqual(torch_kernels.main([str(path), "--output", "/nowhere/out.json"]), 2)
        self.assertIn("command line: --output: got '", err.getvalue())


if __name__ == "__main__":
    unittest.main()
