#!/usr/bin/env bash
# usage: kernel_resources.sh [ARCHITECTURE…]
#
# Compiles the CUDA kernels for each architecture (default: sm_80 sm_90 sm_100) and prints what one thread or block of each
# takes: registers, stack and spilled bytes, shared memory. Ends with 1 if a kernel spills registers, because a spill
# costs memory traffic that no other test shows, and with 77 (skipped) without nvcc.
set -euo pipefail
root="$(cd "$(dirname "$0")/../.." && pwd)"
nvcc="$(command -v nvcc || true)"
[[ -n "$nvcc" ]] || nvcc=/usr/local/cuda/bin/nvcc
if [[ ! -x "$nvcc" ]]; then
    echo "nvcc was not found; no kernel is compiled"
    exit 77
fi
(($#)) || set -- sm_80 sm_90 sm_100
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT

# ptxas's lines: "Compiling entry function 'NAME' for 'ARCH'", "… bytes stack frame, … bytes spill stores, …", "Used …".
table() {
    awk '
        /Compiling entry function/ { split($0, quoted, "\047"); name = quoted[2] }
        /bytes stack frame/ { stack = $1; spilled = $5 + $9 }
        /Used [0-9]+ registers/ {
            registers = $0; sub(/.*Used /, "", registers); sub(/ registers.*/, "", registers)
            shared = 0
            if ($0 ~ /bytes smem/) { shared = $0; sub(/ bytes smem.*/, "", shared); sub(/.* /, "", shared) }
            print registers, stack, spilled, shared, name
        }'
}

spills=no
for architecture in "$@"; do
    printf '\n%s\n%9s  %5s  %7s  %6s  %s\n' "$architecture" registers stack spilled shared kernel
    for source in "$root"/kernels/cuda/*.cu; do
        "$nvcc" -std=c++20 -O2 --extended-lambda --expt-relaxed-constexpr -I "$root" -I "$root/kernels/cuda/ptx" -arch="$architecture" -Xptxas -v -cubin \
            -o "$folder/kernels.cubin" "$source" 2>"$folder/ptxas" || { cat "$folder/ptxas" >&2; exit 1; }
        while read -r registers stack spilled shared name; do
            # The kernel without namespaces and parameters; of a lambda the function that has it.
            text="$(c++filt "$name" | sed -E 's/\(anonymous namespace\):://g; s/_INTERNAL_[0-9a-z_]*:://g; s/orrery::kernels::cuda:://g; s/^void //; s/\(.*//; s/^each(_of_rows)?_kernel<//')"
            printf '%9s  %5s  %7s  %6s  %s\n' "$registers" "$stack" "$spilled" "$shared" "$text"
            ((spilled == 0)) || spills=yes
        done < <(table <"$folder/ptxas")
    done
done
[[ "$spills" == no ]] || { echo "a kernel spills registers" >&2; exit 1; }
