#!/usr/bin/env bash
# usage: dev_gpu_check.sh
# What ./dev gpu does on a machine with GPUs, with stand-ins for the driver's tool, for the two programs and for Python: it runs
# two ranks where there are two GPUs, PyTorch where it is, and a failed step neither keeps it from the others nor is forgotten.
set -euo pipefail
root="$(cd "$(dirname "$0")/../.." && pwd)"
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
mkdir -p "$folder/build/gpu" "$folder/bin"
cp "$root/dev" "$folder/dev"

cat >"$folder/bin/nvidia-smi" <<'SMI'
#!/usr/bin/env bash
[[ "$1" == -L ]] || { echo "name, driver"; exit; }
for ((gpu = 0; gpu < GPUS; ++gpu)); do
    echo "GPU $gpu: a stand-in" || exit 1
    sleep 0.05  # as the driver, which is slow
done
SMI
cat >"$folder/build/gpu/gpu_test" <<'TEST'
#!/usr/bin/env bash
exit "$TEST_EXIT"
TEST
cat >"$folder/build/gpu/orrery" <<'ORRERY'
#!/usr/bin/env bash
echo "$*" >>"$CALLS"
[[ "$1" != "$FAILS" ]] || exit 1
while (($#)); do
    [[ "$1" != --output ]] || touch "$2"
    shift
done
ORRERY
cat >"$folder/bin/python3" <<'PYTHON'
#!/usr/bin/env bash
if [[ "$1" == -c ]]; then  # what can be imported
    [[ "$2" == "import torch"*cuda.is_available* ]] || exit 1
    for module in torch transformers; do
        [[ "$2" != *"$module"* || " $MODULES " == *" $module "* ]] || exit 1
    done
    exit 0
fi
echo "python3 $*" >>"$CALLS"
echo "printed by $1"
[[ "$1" != "$FAILS" ]]
PYTHON
chmod +x "$folder"/bin/* "$folder"/build/gpu/*

# run NAME GPUS TEST_EXIT FAILS [MODULE…]: sets $code; $folder/NAME.calls and $folder/NAME.err hold the calls and the errors.
run() {
    code=0
    GPUS="$2" TEST_EXIT="$3" FAILS="$4" MODULES="${*:5}" CALLS="$folder/$1.calls" PATH="$folder/bin:$PATH" \
        "$folder/dev" gpu --no-build "$folder/$1" >"$folder/$1.out" 2>"$folder/$1.err" || code=$?
}
expect() {  # expect WHAT COMMAND…
    local what="$1"
    shift
    "$@" || { echo "failed: $what" >&2; cat "$folder"/*.err >&2; exit 1; }
}

run two 2 0 none
expect "two GPUs" test "$code" = 0
expect "a rank alone is compared" grep -q '^validate .*gpt2-128.plan.json' "$folder/two.calls"
expect "in bf16, too" grep -q '^plan .*--precision bf16 .*gpt2-1024-bf16.plan.json' "$folder/two.calls"
expect "two ranks are compared" grep -q '^validate .*gpt2-tp2.plan.json' "$folder/two.calls"
run one 1 0 none
expect "one GPU" test "$code" = 0
expect "no two ranks on one GPU" bash -c "! grep -q gpt2-tp2 '$folder/one.calls'"
run failing 1 1 none
expect "failed tests are reported" test "$code" = 1
expect "failed tests are named" grep -q 'failed on the GPU: tests' "$folder/failing.err"
expect "measurements follow failed tests" grep -q '^validate' "$folder/failing.calls"
run unplanned 1 0 backends
expect "a plan that fails is reported" grep -q 'failed on the GPU: plans' "$folder/unplanned.err"
run uncalibrated 1 0 calibrate
expect "a failed calibration is reported" grep -q 'failed on the GPU: calibration' "$folder/uncalibrated.err"
run unvalidated 2 0 validate
expect "each failed comparison is named" test "$(grep -c 'failed on the GPU: runs' "$folder/unvalidated.err")" = 2
expect "nothing is asked of PyTorch where it is not" bash -c "! grep -q ^python3 '$folder/two.calls'"
run torch 1 0 none torch
expect "PyTorch" test "$code" = 0
expect "PyTorch's kernels are timed" grep -qxF "python3 tests/bench/torch_kernels.py $folder/torch/gpu.cluster.json --output $folder/torch/torch_kernels.json" "$folder/torch.calls"
expect "the table of kernels is kept" grep -q 'printed by .*torch_kernels.py' "$folder/torch/torch_kernels.txt"
expect "no training without Transformers" bash -c "! grep -q torch_training '$folder/torch.calls'"
run unmatched 1 0 tests/bench/torch_kernels.py torch transformers
expect "failed timings of PyTorch are reported" test "$code" = 1
expect "failed timings of PyTorch are named" grep -q "failed on the GPU: PyTorch's kernels: see $folder/unmatched/torch_kernels.txt" "$folder/unmatched.err"
expect "one failure" test "$(grep -c 'failed on the GPU' "$folder/unmatched.err")" = 1
expect "the other steps follow" grep -q '^python3 .*torch_training.py' "$folder/unmatched.calls"
expect "comparisons follow" grep -q '^validate .*gpt2-128.plan.json' "$folder/unmatched.calls"
run unprofiled 1 0 calibrate torch
expect "no timings of PyTorch without a calibration" bash -c "! grep -q torch_kernels '$folder/unprofiled.calls'"
run none 0 0 none
expect "no GPU is no failure" test "$code" = 0
