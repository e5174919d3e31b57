#!/usr/bin/env bash
# usage: ranks_check.sh ORRERY_EMULATED
# Runs plans of two ranks on emulated GPUs, each with several orders of execution (SEEDS, by default three), which must give
# the same losses. For builds with ThreadSanitizer, whose reports end the command with another exit code.
set -euo pipefail
orrery="$1"
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
while read -r name model dp tp kind more; do
    # shellcheck disable=SC2086
    "$orrery" plan --model "$model" --cluster dgx-h100 --gpus 2 --dp "$dp" --tp "$tp" --pp 1 --data-parallel "$kind" \
        --implementation orrery --precision fp32 --global-batch 4 --micro-batch 1 --seq 8 --threads 1 $more \
        --output "$folder/$name.plan.json" >"$folder/plan.txt"
    first=
    for seed in ${SEEDS:-0 1 2}; do
        first="${first:-$seed}"
        EMULATED_CUDA_SEED=$seed "$orrery" run "$folder/$name.plan.json" --steps 2 --warm-up 0 --timeout 120 \
            >"$folder/$name.$seed.txt" || { echo "$name, seed $seed: exit code $?" >&2; exit 1; }
        grep '^loss by step' "$folder/$name.$seed.txt" >"$folder/$name.$seed.losses"
        cmp "$folder/$name.$first.losses" "$folder/$name.$seed.losses" || { echo "$name: other losses with seed $seed" >&2; exit 1; }
    done
done <<'PLANS'
ddp tiny-gpt 2 1 ddp
zero2 tiny-llama 2 1 zero2
zero3 tiny-llama 2 1 zero3
tp tiny-gpt 1 2 ddp
PLANS
